"""Remedies that the tables do not follow, each with the reason.

An entry is a place, `_signature/options.py:_vmap`, and a part of its words; no words stand for all
that begins so.
"""

_WORKER = "needs several processes: tests/distributed"
_DEVICES = "needs several devices: tests/devices"
_SYSTEM = "what the system says is mended outside of Python"
_FAULT = "a fault of jitney's or of XLA's: it is to be reported"
_OTHER_VERSION = "needs another version of JAX, or another package, than is installed here"
_SHELL = (
    "a command of the shell, about the machine or what is installed: tests/command/test_doctor.py"
    " and test_machine.py"
)
_OWN = "of commands that run a program, or work on a cache that others use: tests/command"
_OUTSIDE = "of the tests of a suite or of a notebook: tests/test_tools.py and tests/measured"

ELSEWHERE = [
    (
        "_diagnosis/remedies.py",
        "",
        "tests/diagnosis/test_catalogue.py applies each, and counts fewer compiles",
    ),
    ("_processes/agreement.py", "", _WORKER),
    ("_processes/channel.py", "", _WORKER),
    ("_processes/connection.py", "", _WORKER),
    ("_processes/launch.py", "", _WORKER),
    ("_processes/from_processes.py", "", _WORKER),
    ("_processes/distributed.py", "", _WORKER),
    ("_devices/pipeline.py", "", _DEVICES),
    (
        "_stages/place.py:_does_not_divide",
        "",
        "needs several devices: tests/devices/test_remedies.py",
    ),
    ("_stages/chunk.py:Chunk._check_order", "", _DEVICES),
    ("_kept/asked.py:Asked.check_same", "", _FAULT),
    ("_verify/reproduce.py:failure", "", _FAULT),
    ("_verify/verification.py:Verification._not_xlas", "", _FAULT),
    ("_diagnosis/tracer_errors.py:low_product_error", "", _FAULT),
    ("_export/lowering.py:_messages", "", _FAULT),
    ("_export/container.py:write", "mend what the system says", _SYSTEM),
    ("_export/container.py:read", "mend what the system says", _SYSTEM),
    ("_stream/resume.py:Checkpoint.write", "", _SYSTEM),
    ("_processes/checkpoints.py:Checkpoints.__init__", "mount the storage", _SYSTEM),
    ("_processes/checkpoints.py:Checkpoints.__init__", "install", _OTHER_VERSION),
    ("_export/versions.py", "", _OTHER_VERSION),
    ("_export/writing.py:_check", "install it", _OTHER_VERSION),
    ("_console.py:bar", "", _OTHER_VERSION),
    ("_command/doctor.py", "", _SHELL),
    ("_command/faults.py", "", _SHELL),
    ("_command/machine.py", "", _SHELL),
    ("_command/kept.py", "", _OWN),
    ("_command/start.py", "", _OWN),
    ("_command/reread.py", "", _OWN),
    ("_command/bench/target.py:_file", "export … in the shell", _SHELL),
    (
        "_jax/compile_cache/folder.py",
        "",
        "of the folder of the cache, the file system and its links: tests/jax",
    ),
    ("pytest_jitney.py", "", _OUTSIDE),
    ("_devices/configure.py", "", "of a process that has not started JAX: tests/test_configure.py"),
    ("_jax/compile_cache/cache.py", "", "of the environment that a process starts in: tests/jax"),
    (
        "_diagnosis/tracer_errors.py:_fix",
        "if it is data, ",
        "a beginning that is taken off the others",
    ),
    ("_export/container.py:_parted", "", "a file that was changed and given a new digest"),
    ("_export/header.py:_foreign", "", "a file that was changed and given a new digest"),
    ("_export/container.py:_check_line", "load it with that jitney", "a file of another jitney"),
    (
        "_processes/checkpoints.py:Checkpoints._without_values",
        "",
        "a checkpoint of an earlier jitney",
    ),
    ("testing.py:assert_memory", "leave the test out", "a device without an analysis of memory"),
    ("_stream/placement.py:Laid.of", "", _WORKER),
    ("_stages/chunk.py:Chunk._fitting", "give it `chunk=", _DEVICES),
    ("_simulate/simulate.py:_mesh_of", "simulate smaller meshes", "thousands of virtual devices"),
    ("_simulate/simulate.py:simulate", "", "another process that fails"),
    ("_stages/chunk.py:Chunk.of", "work on the parts", "two thousand million elements"),
    ("_program/outer_transforms.py:is_padded", "call it outside of one", _DEVICES),
    ("_jax/mesh.py:_divided_already", "", _DEVICES),
    ("_measured/profile.py:Profile._end", "", _SYSTEM),
    ("_measured/profile.py:_demand_writable", "", _SYSTEM),
]
