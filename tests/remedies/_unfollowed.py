"""Remedies that the tables do not follow, each with the reason.

An entry is a place, `_signature/options/readers.py:read_vmap`, and a part of its words; no words
stand for all that begins so. What is followed elsewhere names the test that does it.
"""

_PROCESSES = "tests/distributed/test_remedies.py follows it, in two processes"
_DEVICES = "tests/devices/test_remedies.py follows it, on eight devices"
_SHELL = (
    "a command of the shell: tests/command/test_doctor.py and test_machine.py look when it is said"
)
_HOSTS = (
    "another process is started: tests/distributed/test_processes.py looks when it is said, and"
    " starts all of them in its other tests"
)
_NOWHERE = "hosts that differ, or do not reach each other, and no test has any"
_FAULT = "a fault of jitney's or of XLA's: it is to be reported"

ELSEWHERE = [
    (
        "_diagnosis/retraces/remedies.py",
        "",
        "tests/diagnosis/test_catalogue.py applies each, and counts fewer compiles",
    ),
    ("_processes/compare_processes.py:compare", "", _PROCESSES),
    ("_processes/compare_processes.py:refuse_padding", "", _PROCESSES),
    ("_processes/compare_processes.py:_refuse_host", "", _PROCESSES),
    ("_processes/from_processes.py:_check", "pass it as it is", _PROCESSES),
    ("_stream/stream_layout.py:StreamLayout.of", "", _PROCESSES),
    (
        "_processes/compare_processes.py:_explaining.explained",
        "",
        "tests/distributed/test_training.py goes on from the checkpoint, with other processes",
    ),
    (
        "_processes/channel.py:_alarm",
        "",
        "tests/distributed/test_training.py goes on from the checkpoint, with other processes",
    ),
    ("_processes/channel.py:Channel", "", _HOSTS),
    ("_processes/launch.py:_await_coordinator", "", _HOSTS),
    ("_processes/launch.py:_too_late", "", _HOSTS),
    ("_processes/connection.py:connect", "", _NOWHERE),
    ("_processes/distributed.py:_open_channel", "", _NOWHERE),
    ("_processes/from_processes.py:_check", "pass a multiple of", _DEVICES),
    ("_stages/sharding.py:_does_not_divide", "", _DEVICES),
    ("_stages/chunking/refusals.py:cannot_cut_on_devices", "", _DEVICES),
    ("_serialized/request.py:CacheRequest.compare_programs", "", _FAULT),
    ("_verify/reproduce.py:failure", "", _FAULT),
    ("_verify/verification.py:Verification._not_xlas", "", _FAULT),
    (
        "_diagnosis/tracer_errors.py:low_product_error",
        "",
        f"{_FAULT}; tests/diagnosis/test_tracer_errors.py looks when it is said",
    ),
    ("_command/machine/doctor.py", "", _SHELL),
    ("_command/machine/checks.py", "", _SHELL),
    ("_command/machine/checks.py", "", _SHELL),
    (
        "pytest_jitney.py",
        "",
        "tests/measured/test_plugin.py follows it, in a suite of its own",
    ),
    (
        "testing.py:_hold_temporaries",
        "leave the test out",
        "nothing is left to run, on a device without an analysis of memory",
    ),
]
