"""Simulation of a program on absent devices: it is compiled for them by XLA, and never run.

jitney.simulate(loss.grad, model, sizes={"batch": 65536}, mesh={"data": 256}, device="h200")
simulate.py       abstract arguments, and one `Case` for each mesh
lowering.py       `Case`: traces and exports the program, and assembles the figures
other_process.py  compiles it in a process with 256 virtual CPU devices
traffic.py        collectives and their bytes, from the text of the compiled program
roofline.py       seconds of operations and collectives
device.py         speeds, memory and links of the "h200"
figures.py        the `Simulation` that is returned, and its table
"""
