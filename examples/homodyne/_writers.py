"""Files laid out as beamlines lay them out, after the same descriptions as the readers follow."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..trf._fail import fail

FRAME = 0.1  # seconds


def aps(path: Path, maps: np.ndarray, phi: np.ndarray, q: float) -> None:
    """As boost_corr writes, with a second q of which nothing was correlated."""
    with _new(path) as file:
        qmap, twotime = file.create_group("xpcs/qmap"), file.create_group("xpcs/twotime")
        qmap["dynamic_v_list_dim0"] = np.array([q, 2 * q])
        qmap["dynamic_v_list_dim1"] = phi
        qmap["dynamic_index_mapping"] = np.arange(2 * phi.size)
        qmap["dynamic_num_pts"] = np.array([2, phi.size])
        qmap["map_names"] = [b"q", b"phi"]
        qmap["map_units"] = [b"1/A", b"deg"]
        twotime["processed_bins"] = np.arange(1, phi.size + 1)
        twotime["config/stride_frame"] = twotime["config/avg_frame"] = 1
        twotime["config/begin_frame"] = 0
        for number, each in enumerate(maps, 1):
            twotime.create_dataset(
                f"correlation_map/c2_{number:05d}", data=np.triu(each), compression="lzf"
            )
        file["entry/instrument/detector_1/frame_time"] = FRAME
        file["entry/instrument/incident_beam/incident_energy"] = 7.35


def aps_before(path: Path, maps: np.ndarray, phi: np.ndarray, q: float) -> None:
    """As xpcs-eigen writes."""
    with _new(path) as file:
        file["xpcs/dqlist"] = np.full((1, phi.size), q)
        file["xpcs/dphilist"] = phi[None]
        file["xpcs/analysis_type"] = b"Twotime"
        for name in ("avg_frames", "stride_frames", "data_begin_todo"):
            file[f"xpcs/{name}"] = np.array([[1]], np.uint64)
        file["measurement/instrument/detector/exposure_period"] = np.array([[FRAME]])
        for number, each in enumerate(maps, 1):
            file.create_dataset(
                f"exchange/C2T_all/g2_{number:05d}", data=np.triu(each), compression="gzip"
            )


def nexus(path: Path, maps: np.ndarray, phi: np.ndarray, q: float) -> None:
    """As NXxpcs says, all maps in one array."""
    with _new(path) as file:
        entry = file.create_group("entry")
        entry.attrs["NX_class"] = "NXentry"
        entry["definition"] = "NXxpcs"
        found = entry.create_dataset("twotime/two_time_corr_func", data=maps)
        found.attrs.update(
            storage_mode="one_array_q_first",
            baseline_reference=1,
            time_origin_location="upper_left",
            populated_elements="all",
        )
        masks = entry.create_group("instrument/masks")
        masks["dynamic_q_list"], masks["dynamic_phi_list"] = np.full(phi.size, q), phi
        masks["dynamic_q_list"].attrs["units"] = "1/angstrom"
        masks["dynamic_phi_list"].attrs["units"] = "degrees"
        entry["instrument/detector_1/frame_time"] = FRAME
        entry["instrument/detector_1/frame_time"].attrs["units"] = "s"


def esrf(path: Path, maps: np.ndarray, phi: np.ndarray, q: float) -> None:
    """As the ESRF's result files of version 2.0, by age and lag."""
    frames = maps.shape[1]
    ages, lags = np.arange(2 * frames - 1) / 2, np.arange(frames)
    ttcf = np.full((phi.size, ages.size, lags.size), np.nan, np.float32)
    i, j = np.triu_indices(frames, 1)
    ttcf[:, i + j, j - i] = maps[:, i, j]
    with _new(path) as file:
        file.attrs["MagicString"] = "XPCSResultFile_v2.0"
        group = file.create_group("entry_0000/correlations/full")
        group["twotime/ttcf"] = ttcf
        group["twotime/age"], group["twotime/lag"] = FRAME * ages, FRAME * lags
        group["parameters/q"] = np.full(phi.size, 10 * q)  # 1/nm


def dynamix(path: Path, maps: np.ndarray, phi: np.ndarray, q: float) -> None:
    """As dynamix writes, with its configuration."""
    del phi
    name = path.name.removesuffix("_event_trc.npz")
    if name == path.name:
        fail(
            f"{path.name} is not a name that dynamix gives.",
            "It writes NAME_event_trc.npz, and reads its configuration's name from that.",
            f"make {path.stem}_event_trc.npz.",
        )
    np.savez_compressed(path, data=maps[0])
    path.with_name(f"input_xpcs_{name}.txt").write_text(
        f"[exp_setup]\nlagtime = {FRAME}\nfirstq = {q}\nstepq = 0.001\n\n[correlator]\nttcf = 1\n"
    )


def pyxpcs(path: Path, maps: np.ndarray, phi: np.ndarray, q: float) -> None:
    """As pyXPCS writes, with the curves that say q and the time of a frame."""
    del phi
    prefix = path.name.removesuffix("2times_q_1.edf")
    if prefix == path.name:
        fail(
            f"{path.name} is not a name that pyXPCS gives.",
            "It writes PREFIX2times_q_N.edf, where N is the number of the bin.",
            f"make {path.stem}_2times_q_1.edf.",
        )
    low, high = float(maps[0].min()), float(maps[0].max())
    scaled = (maps[0].astype(float) - low) / (high - low) * 2**16
    stored = scaled.astype(np.int64).astype(np.uint16)  # the largest is 0, as there
    size = maps.shape[1]
    entries = {
        "HeaderID": "EH:000001:000000:000000",
        "Image": "1",
        "ByteOrder": "LowByteFirst",
        "DataType": "UnsignedShort",
        "Dim_1": size,
        "Dim_2": size,
        "Size": stored.nbytes,
        "MaxValue": high,
        "MinValue": low,
    }
    header = "{\n" + "".join(f"{key} = {value} ;\n" for key, value in entries.items())
    blank = -(len(header) + 2) % 1024
    path.write_bytes((header + " " * blank + "}\n").encode() + stored.tobytes())
    lags = "".join(f"{FRAME * (1 + k):g} {1.3:g}\n" for k in range(5))
    path.with_name(f"{prefix}cf.dat").write_text(f"#q values: {q}\n{lags}")


def plain(path: Path, maps: np.ndarray, phi: np.ndarray, q: float) -> None:
    """As a user would."""
    if path.suffix != ".npz":
        fail(
            f"{path.name} does not end with .npz.",
            "np.savez adds that.",
            f"make {path.stem}.npz.",
        )
    np.savez(path, c2=maps, phi=phi, q=q, dt=FRAME)


def _new(path: Path) -> Any:
    return importlib.import_module("h5py").File(path, "w")


WRITERS: dict[str, Callable[[Path, np.ndarray, np.ndarray, float], None]] = {
    "aps-8idi": aps,
    "aps-8idi-before": aps_before,
    "nxxpcs": nexus,
    "esrf": esrf,
    "dynamix": dynamix,
    "pyxpcs": pyxpcs,
    "npz": plain,
}
