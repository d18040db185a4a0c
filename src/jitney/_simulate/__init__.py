"""Simulation of a program on absent devices: it is compiled for them by XLA, and never run.

    jitney.simulation.simulate(loss, x, mesh={"data": 256}, device="h200")  # a `Simulation`

The call passes through these files:

    simulate.py       makes a `Case` of abstract arguments for each mesh
    lowering.py       `Case` traces and exports the program
    other_process.py  compiles it in a process with 256 virtual CPU devices
    roofline.py       reads collectives and their bytes from the text of the compiled program, and
                      bounds the seconds of operations and collectives
    device.py         has speeds, memory and links of the "h200"
    figures.py        has the `Simulation` that is returned, and its table

Programs and stages do not import this folder.
"""
