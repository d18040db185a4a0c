"""Remedies that the tables do not follow, each with the reason, or with none yet.

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
    ("_processes/compare_processes.py", "", _WORKER),
    ("_processes/channel.py", "", _WORKER),
    ("_processes/connection.py", "", _WORKER),
    ("_processes/launch.py", "", _WORKER),
    ("_processes/from_processes.py", "", _WORKER),
    ("_processes/distributed.py", "", _WORKER),
    ("_devices/pipeline.py", "", _DEVICES),
    (
        "_stages/sharding.py:_does_not_divide",
        "",
        "needs several devices: tests/devices/test_remedies.py",
    ),
    ("_stages/chunk.py:Chunk._check_order", "", _DEVICES),
    ("_serialized/request.py:CacheRequest.check_same", "", _FAULT),
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
    ("_command/cache_command.py", "", _OWN),
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
    ("_stream/stream_layout.py:StreamLayout.of", "", _WORKER),
    ("_stages/chunk.py:Chunk._fitting", "give it `chunk=", _DEVICES),
    ("_simulate/simulate.py:_mesh_of", "simulate smaller meshes", "thousands of virtual devices"),
    ("_simulate/simulate.py:simulate", "", "another process that fails"),
    ("_stages/chunk.py:Chunk.of", "work on the parts", "two thousand million elements"),
    ("_program/outer_transforms.py:is_padded", "call it outside of one", _DEVICES),
    ("_jax/mesh.py:_divided_already", "", _DEVICES),
    ("_measured/profile.py:Profile._end", "", _SYSTEM),
    ("_measured/profile.py:_demand_writable", "", _SYSTEM),
]
NOT_YET = [
    (
        "_command/bench/command.py:carry_out",
        "end the range before it, or give `chunk=` or `memory=`.",
    ),
    (
        "_diagnosis/nonfinite.py:message",
        "look for rounding at the edge of overflow or of a domain; compiled pro",
    ),
    (
        "_diagnosis/tracer_errors.py:over_error",
        "give the rule that value as an argument of its function, or leave the ",
    ),
    ("_export/export_sizes.py:arrays_at", "pass no example of that array, or one of that size."),
    ("_export/lowering.py:lowered", "drop the check, or export what stands around it."),
    ("_export/lowering.py:lowered", "replace that operation, or compile where the code is."),
    (
        "_export/trees.py:resolved",
        "export it anew, or load it where the class is as it was, or is not the",
    ),
    (
        "_export/writing.py:_bound_arrays",
        "bind it to arrays, or export the function and pass them when it is loa",
    ),
    ("_export/writing.py:_bound_arrays", "leave that axis out of `sizes`."),
    ("_export/writing.py:_bound_names", "export a function that names them."),
    (
        "_export/writing.py:_serialized",
        "export it without vjp_order, or change what cannot be differentiated.",
    ),
    ("_interface/state.py:_check_there", "give … a value."),
    (
        "_processes/checkpoints.py:Checkpoints._damaged",
        "give another folder, or another step, such as the one before.",
    ),
    (
        "_processes/checkpoints.py:Checkpoints._refuse",
        "take it out of the tree, or make it a static field.",
    ),
    (
        "_program/in_32_bits.py:demand_lowered",
        "take its gradient with `.grad`, a program of its own; or ",
    ),
    ("_program/limit.py:_limit_message", "keep shapes and static values the same"),
    (
        "_program/outer_transforms.py:warn_uncut",
        "take its derivative with `.grad` or its kin, which are cut where they ",
    ),
    ("_program/tolerance.py:report_on", "pass an array of numbers."),
    ("_signature/copies.py:_copied_object", "return arrays, or a class that has a `__copy__`."),
    ("_signature/copies.py:_new", "pass a … of its items."),
    ("_stages/autocast.py:Autocast.plan", "pass arrays to it."),
    (
        "_stages/autocast.py:Autocast.wrap",
        "call it first, or write the policy that `jitney.precision_report` give",
    ),
    ("_stages/chunk.py:Chunk.finish", "return the size itself, or make an array of the number."),
    (
        "_stream/reading.py:ChunkReader._changed",
        "begin anew: without the checkpoint, and with data that nobody writes a",
    ),
    ("_stream/sources.py:FileSource._check", "begin anew when nobody writes to it."),
    ("_stream/sources.py:_check_size", "begin anew when nobody writes to it."),
    (
        "_stream/steps.py:_check_held",
        "give the function memory=… or more, or call it with `chunk`, on data t",
    ),
    ("_stream/stream.py:_StreamRun._check_kept", "drop checkpoint=...."),
    ("_stream/stream.py:stream", "call the function itself on a part of the data"),
    ("_stream/verify.py:verify_stream", "stream a part of them to verify."),
    (
        "testing.py:assert_faster",
        "ask for less, give it longer work or more `seconds`, or measure where ",
    ),
    ("testing.py:assert_faster", "correct or remove it."),
    ("testing.py:assert_faster", "make it faster, or ask for less."),
]
