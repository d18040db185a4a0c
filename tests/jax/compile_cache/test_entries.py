"""The entries of the compilation cache: whole, or compiled again."""

import os

import pytest

from jitney._jax.compile_cache import entries as _entries
from tests.jax.compile_cache._processes import SRC, process

ZSTD = '''
"""Stands in for the package: frames of zstd as far as their header, with and without a checksum at the end."""
import zlib

class ZstdError(Exception): ...

class ZstdCompressor:
    def __init__(self, *, write_checksum=False):
        self.flag = 4 * write_checksum
    def compress(self, raw):
        packer = zlib.compressobj(wbits=-15)
        packed = packer.compress(raw) + packer.flush()
        return b"\\x28\\xb5\\x2f\\xfd" + bytes([0x60 | self.flag]) + packed + (zlib.crc32(raw).to_bytes(4) if self.flag else b"")

class ZstdDecompressor:
    def decompress(self, frame):
        if frame[:4] != b"\\x28\\xb5\\x2f\\xfd":
            raise ZstdError("no frame")
        unpacker = zlib.decompressobj(wbits=-15)
        try:
            raw = unpacker.decompress(frame[5:])
        except zlib.error as error:
            raise ZstdError("damaged") from error
        if not unpacker.eof or frame[4] & 4 and unpacker.unused_data[:4] != zlib.crc32(raw).to_bytes(4):
            raise ZstdError("damaged")
        return raw
'''


def codec(tmp_path, name):
    """The environment of a process whose JAX compresses so: Python 3.14 has zstd, others have it
    where `zstandard` is installed.
    """
    if name == "zlib" and _entries.NAME != "xla":
        pytest.skip("zstd is here")
    if name == "zstd" and _entries.NAME == "xla":
        (tmp_path / "zstandard").mkdir()
        (tmp_path / "zstandard" / "__init__.py").write_text(ZSTD)
    return {"PYTHONPATH": f"{tmp_path / 'zstandard' / '..'}{os.pathsep}{SRC}"}


@pytest.mark.core("zlib")
@pytest.mark.parametrize("name", ["zlib", "zstd"])
def test_a_flipped_bit_is_never_run(tmp_path, name):
    """The program is compiled anew, and the entry is replaced; without a checksum XLA runs what the
    bit has made of it, or dies.
    """
    code = """
        import random
        _cache.ensure()
        compiled(2.0)
        (entry,) = _cache.facts().directory.glob("*-cache")
        size, out["healed"], rng = entry.stat().st_size, 0, random.Random(0)
        warnings.simplefilter("ignore")
        for _ in range(15):
            bit, whole = rng.randrange(8 * size), bytearray(entry.read_bytes())
            whole[bit // 8] ^= 1 << bit % 8
            entry.write_bytes(whole)
            assert jax.jit(lambda x: x * 2.0 + 1)(jnp.arange(3.0)).tolist() == [1.0, 3.0, 5.0]
            compiled(2.0)
            out["healed"] += compiled(2.0) == "hit"
        out["folder"] = entry.parent.name
    """
    out = process(code, tmp_path / "cache", **codec(tmp_path, name))
    assert out["folder"] == ("xla" if name == "zlib" else "xla-zstd")
    assert out["healed"] == 15


@pytest.mark.rest
@pytest.mark.parametrize("name", ["zlib", "zstd"])
def test_what_is_empty_cut_or_unfinished_heals(tmp_path, name):
    """Empty ones are gone before JAX looks; at a cut one it warns once. Of zstd, what has no
    checksum yet is not trusted either.
    """
    code = """
        said = []
        warnings.showwarning = lambda message, *_, **__: said.append(str(message))
        _cache.ensure()
        out["left"] = [p.name for p in _cache.facts().directory.iterdir()]
        out["how"] = [sorted(map(compiled, (2.0, 3.0, 4.0))) for _ in range(3)]
        out["said"] = len(said)
    """
    environment = codec(tmp_path, name)
    assert process(code, tmp_path / "cache", **environment)["how"][0] == ["kept"] * 3
    empty, cut, raw = (tmp_path / "cache").glob("*/*-cache")
    empty.write_bytes(b"")
    cut.write_bytes(cut.read_bytes()[:-100])
    if name == "zstd":
        raw.write_bytes(raw.read_bytes()[:4] + b"\x60" + raw.read_bytes()[5:])
    (empty.parent / "jit_f-0-cache-1-sealing").write_bytes(b"of a process that was killed")
    out = process(code, tmp_path / "cache", **environment)
    assert set(out["left"]) == ({cut.name, raw.name} if name == "zlib" else {cut.name})
    assert out["said"] == 1
    assert out["how"][1:] == [["hit", "hit", "kept"], ["hit"] * 3]


AT_ONCE = """
    import sys, zlib
    from concurrent.futures import ThreadPoolExecutor
    from jitney._jax.compile_cache.entries import CODEC, NAME

    (Path(base) / NAME).mkdir(mode=0o700, parents=True)
    Path(base).chmod(0o700)
    old = Path(base) / NAME / "old-cache"
    old.write_bytes(b"\\x28\\xb5\\x2f\\xfd\\x64 damaged")
    old.chmod(0o600)
    _cache.ensure()
    both = threading.Barrier(2)

    def written(name, at_once=True):
        '''What JAX says and does when it has compiled a program.'''
        jax.monitoring.record_event("/jax/compilation_cache/compile_requests_use_cache")
        jax.monitoring.record_event("/jax/compilation_cache/cache_misses")
        if name:
            (old.parent / f"{name}-cache").write_bytes(CODEC.compress(b"program"))
        if at_once:
            both.wait()
        jax.monitoring.record_event_duration_secs("/jax/core/compile/backend_compile_duration", 0.0)

    threads = ThreadPoolExecutor(2)

    def pairs(number):
        for i in range(number, number + 100):
            list(threads.map(written, (f"a{i}", f"b{i}")))
        events.clear()
"""


@pytest.mark.rest
@pytest.mark.parametrize("name", ["zlib", "zstd"])
def test_what_threads_write_at_once_is_no_sign_of_damage(tmp_path, name):
    """The first to be done sees the files of both; the folder is read when one has written none."""
    code = f"""{AT_ONCE}
    pairs(0)
    out["there"] = [old.exists()]
    written(None, at_once=False)
    out["there"].append(old.exists())
    """
    assert process(code, tmp_path / "cache", **codec(tmp_path, name))["there"] == [True, False]


@pytest.mark.rest
@pytest.mark.parametrize("name", ["zlib", "zstd"])
def test_of_an_entry_its_name_is_remembered(tmp_path, name):
    """A process that compiles all day holds two objects for each program that it has kept: a name,
    and a number.
    """
    code = f"""{AT_ONCE}
    pairs(0)
    blocks = sys.getallocatedblocks()
    pairs(100)
    out["blocks"] = sys.getallocatedblocks() - blocks
    """
    assert process(code, tmp_path / "cache", **codec(tmp_path, name))["blocks"] < 200 * 2.5


@pytest.mark.rest
@pytest.mark.skipif(_entries.NAME != "xla", reason="with zstd an entry is sealed at once")
def test_a_folder_of_many_is_listed_after_several_writes(tmp_path):
    """Each name in it takes its time. What is damaged is found then too."""
    code = f"""{AT_ONCE}
    for i in range(2500):
        (old.parent / f"{{i}}-cache").write_bytes(CODEC.compress(b"program"))
    _cache.ensure()
    written("first", at_once=False)
    listed, listdir = [], os.listdir
    os.listdir = lambda folder: listed.append(folder) or listdir(folder)
    for i in range(9):
        written(f"next{{i}}" if i else None, at_once=False)
    out["listed"], out["there"] = len(listed), old.exists()
    """
    assert process(code, tmp_path / "cache") == {"listed": 3, "there": False}
