"""Operations that look along an axis: reductions, products, orders, places, shapes, random numbers.

Counts of a histogram have the type of its numbers: in 8 and 16 bits they stop at the last number
that the type can count to, which plain XLA reaches and partial sums do not, so these are of
float32. Literal positions of unsigned types are below half of their range: what XLA for CPUs folds
while it compiles, it takes for negative above (`lax.dynamic_slice` of 4 elements at `uint8(200)`
gives the first).

Where `lax.dynamic_update_slice` writes is an int32: of a narrower type plain XLA for CPUs computes
the last place in that type, and at 256 elements and int8 it writes in front of the array (jax
0.10.2). `tests/axes/test_positions.py` has narrow ones, against NumPy.

Positions read are inside: beyond an array `jax.jacfwd` of plain JAX follows the element that is
read, and `jax.jacrev` drops it, so that a Jacobian may be either. `test_found.py` has gradients of
such.
"""

import re

from ._recipe import each, lines


def tamed(text: str) -> str:
    """Lines whose matrices have NaNs, and no infinities: LAPACK makes zeros or NaNs of a column by
    an infinite pivot, as its blocks lie, and of some of them it never ends (`jnp.linalg.pinv` of
    plain JAX, with an infinity in front).
    """
    return re.sub(r"\{([qm])\}(?!\.shape|\.dtype)", r"jnp.where(abs({\1}) > 9, 1, {\1})", text)


REDUCED = [
    *each(
        "jnp._({x}, axis={A})",
        "sum prod mean var std nansum nanprod nanmean nanvar nanstd average count_nonzero"
        " trapezoid",
        "num",
    ),
    *each("jnp._({x})", "sum prod mean var std count_nonzero", "num"),
    *each(
        "jnp._({x}, axis={A})",
        "max min amax amin argmax argmin ptp nanmax nanmin nanargmax nanargmin",
        "ordered",
    ),
    *each("jnp._({x})", "max min argmax argmin", "ordered"),
    *each("jnp._({x}, axis={A})", "any all", "any"),
    *each("jnp._({x}, axis={A})", "median nanmedian", "float"),
    *lines("jnp.histogram({x}.astype(jnp.float32), bins=4, range=(-2, 2))[0]", "wide"),
    *lines("jnp.histogram2d({v}.astype(jnp.float32), {u}.astype(jnp.float32), bins=3)[0]", "wide"),
    *lines("jnp.histogramdd({m}.astype(jnp.float32), bins=2)[0]", "wide"),
    *each("jnp._({x}, {C} / 8, axis={A})", "quantile nanquantile percentile nanpercentile", "wide"),
    *lines(
        """
        jnp.var({x}, axis={A}, ddof=1)
        jnp.sum({x}, axis={A}, keepdims=True) * {x}
        jnp.mean({x}, axis={A}, where={x} == {x})
        jnp.sum({x}, axis={A}, dtype=jnp.float32)
        jnp.average({x}, weights=abs({y}) + 1, axis={A})
        {x} - {x}.mean(axis={A}, keepdims=True)
        {x}.sum(axis={A}, initial=2)
        jnp.vdot({v}, {u})
        jnp.vecdot({x}, {y}, axis={A})
        jnp.linalg.vecdot({x}, {y}, axis={A})
        jnp.linalg.norm({x})
        jnp.linalg.vector_norm({x}, axis={A})
        jnp.linalg.vector_norm({v}, ord=1)
        jnp.linalg.norm({v}, ord=jnp.inf)
        jnp.linalg.matrix_norm({m})
        lax.reduce_sum({x}, axes=({A},))
        lax.reduce_prod({x}, axes=({A},))
        lax.reduce({x}, jnp.zeros((), {x}.dtype), lax.add, ({A},))
        lax.reduce({x}, jnp.ones((), {x}.dtype), lax.mul, ({A},))
        lax.reduce({x}, jnp.ones((), {x}.dtype), lambda a, b: a + b * 0, ({A},))
        jnp.cov({t})
        jnp.corrcoef({t})
        jnp.polyval({w}, {v})
        jnp.polyval({v}, {s})
        jnp.interp({v}, jnp.arange(4.0), jnp.arange(4.0) ** 2)
        """,
        "num",
    ),
    *lines(
        """
        lax.reduce({x}, jnp.ones((), {x}.dtype), lax.max, ({A},))
        lax.reduce_max({x}, axes=({A},))
        lax.reduce_min({x}, axes=({A},))
        lax.argmax({x}, {A}, jnp.int32)
        lax.argmin({x}, {A}, jnp.uint8)
        jnp.max({x}, axis={A}, initial=1)
        jnp.argmax({x}, axis={A}, keepdims=True)
        jnp.max({x}, axis={A}, where={x} != 0, initial=0)
        jnp.maximum.reduce({x}, axis={A})
        jnp.add.accumulate({x}, axis={A})
        jnp.digitize({x}, jnp.array([-1, 0, 1]))
        jnp.searchsorted(jnp.sort({v}), {u})
        jnp.searchsorted(jnp.array([0, 1, 2], {v}.dtype), {v}, side='right')
        jnp.histogram_bin_edges({x}, bins=3)
        """,
        "real",
    ),
    *each("lax._({x}, axes=({A},))", "reduce_and reduce_or reduce_xor", "bits"),
    *each(
        "jax.nn._({x}, axis={A})", "softmax log_softmax logsumexp standardize logmeanexp", "float"
    ),
    *lines(
        "jax.nn.glu(jnp.concatenate([{x}, {x}], -1))\njax.nn.glu(jnp.concatenate([{x}, {y}], 0),"
        " axis=0)",
        "float",
    ),
    *lines("jnp.array_equal({x}, {y})\njnp.array_equiv({x}, {y})\njnp.allclose({x}, {y})", "num"),
    *lines(
        "jax.nn.one_hot({i}, 5)\njnp.bincount({i}, length=6)\njnp.bincount({i}, weights={v},"
        " length=6)\njax.nn.one_hot({x}, 5)",
        "ordered",
    ),
    *each(
        "jax.ops._({x}, {i}, num_segments=4)",
        "segment_sum segment_max segment_min segment_prod",
        "real",
    ),
    *lines(
        "jax.ops.segment_sum({x}, jnp.sort(abs({i})), num_segments=4, indices_are_sorted=True)",
        "real",
    ),
]
LINEAR = [
    *lines(
        """
        jnp.dot({v}, {u})
        jnp.dot({x}, {y}.T)
        jnp.dot({m}, {w})
        {t} @ {m}
        {m} @ {t}
        {v} @ {m}
        {m} @ {w}
        {m}.T @ {m}
        jnp.matmul({t}, {v})
        jnp.matvec({t}, {v})
        jnp.vecmat({v}, {m})
        jnp.inner({v}, {u})
        jnp.inner({m}, {m})
        jnp.outer({v}, {u})
        jnp.outer({v}, {w})
        jnp.kron({v}, {w})
        jnp.cross({m}, {m})
        jnp.tensordot({m}, {m}, axes=([0], [0]))
        jnp.tensordot({t}, {m}, axes=1)
        jnp.einsum('ij,ik->jk', {m}, {m})
        jnp.einsum('ij,ik,i->jk', {m}, {m}, {v})
        jnp.einsum('ij->i', {m})
        jnp.einsum('ii', {q})
        jnp.einsum('i,i->i', {v}, {u})
        jnp.linalg.outer({v}, {u})
        jnp.linalg.matmul({t}, {m})
        jnp.linalg.tensordot({t}, {m}, axes=1)
        jnp.linalg.cross({m}, {m})
        jnp.linalg.multi_dot([{t}, {m}, {t}])
        jnp.linalg.matrix_power({q}, 2)
        jnp.trace({q})
        jnp.linalg.trace({q})
        jnp.vander({v}, 3)
        jnp.convolve({v}, {w}, mode='same')
        jnp.correlate({v}, {w}, mode='valid')
        lax.dot({t}, {m})
        lax.batch_matmul({m}[:, :, None], {m}[:, None, :])
        lax.dot_general({m}, {m}, (((0,), (0,)), ((), ())))
        lax.dot_general({m}, {m}, (((1,), (1,)), ((0,), (0,))))
        lax.dot_general({m}, {m}, (((0,), (0,)), ((1,), (1,))), preferred_element_type=jnp.float32)
        lax.conv({m}.T[None], jnp.ones((2, 3, 2), {m}.dtype), (1,), 'SAME')
        lax.conv_with_general_padding({m}[None].transpose(0, 2, 1), jnp.ones((1, 3, 2), {m}.dtype), (1,), ((1, 0),), None, None)
        lax.conv_general_dilated({m}[:, None, :], jnp.ones((2, 1, 2), {m}.dtype), (1,), 'SAME')
        lax.conv_general_dilated({m}.T[None], jnp.ones((2, 3, 3), {m}.dtype), (2,), 'SAME')
        lax.conv_general_dilated({m}.T[None], jnp.ones((2, 3, 2), {m}.dtype), (1,), ((2, 1),), lhs_dilation=(2,), rhs_dilation=(3,))
        lax.conv_general_dilated({v}[None, None], {u}[None, None], (1,), ((1, 1),))
        lax.conv_general_dilated({w}[None, None], {v}[None, None], (1,), ((0, {v}.shape[0] - 1),))
        lax.conv_general_dilated({w}[None, None], {v}[None, None], (1,), ((0, {v}.shape[0]),), lhs_dilation=(2,))
        lax.conv_general_dilated({v}[None, None], {u}[None, None], (1,), ((1, 0),))
        lax.conv_general_dilated({m}.T[None], {m}.T[:, None], (1,), ((1, 1),), feature_group_count=3)
        lax.conv_general_dilated({m}.T[:, None], {m}.T[:, None], (2,), ((1, 1),), batch_group_count=3)
        jax.vjp(lambda k: lax.conv_general_dilated({v}[None, None], k[None, None], (1,), ((1, 1),)), {w})[1]({u}[None, None])
        lax.conv_transpose({m}[:, :, None], jnp.ones((2, 1, 2), {m}.dtype), (1,), 'SAME')
        lax.conv_general_dilated_patches({m}[:, None, :], (2,), (1,), 'SAME')
        lax.conv_general_dilated_local({m}[:, None, :], jnp.ones((1, 2, 2), {m}.dtype), (1,), 'VALID', (2,))
        lax.ragged_dot({m}, jnp.ones((2, 3, 2), {m}.dtype), jnp.array([1, 2]))
        jax.nn.scaled_matmul({m}[None], {m}[None], jnp.ones((1, {m}.shape[0], 1)), jnp.ones((1, {m}.shape[0], 1)))
        lax.scaled_dot({m}, {t}, jnp.ones(({m}.shape[0], 1)), jnp.ones((1, {t}.shape[1])))
        lax.approx_max_k({v}, 2)[0]
        lax.approx_min_k({v}, 2)[0]
        """,
        "num",
    ),
    *lines(
        tamed("""
        jnp.linalg.inv({m}.T @ {m} + 9 * jnp.eye(3, dtype={m}.dtype))
        jnp.linalg.solve({m}.T @ {m} + 9 * jnp.eye(3, dtype={m}.dtype), {t})
        jnp.linalg.solve({q} + 99 * jnp.eye({q}.shape[0], dtype={q}.dtype), {v})
        jnp.linalg.cholesky({m}.T @ {m} + 9 * jnp.eye(3, dtype={m}.dtype))
        jnp.linalg.cholesky({q} @ {q}.T.conj() + 99 * jnp.eye({q}.shape[0], dtype={q}.dtype))
        jnp.linalg.det({q})
        jnp.linalg.slogdet({q} + 99 * jnp.eye({q}.shape[0], dtype={q}.dtype))[1]
        jnp.linalg.eigvalsh({m}.T @ {m})
        jnp.linalg.eigh({q} + {q}.T.conj())[0]
        jnp.linalg.eigvals({q})
        jnp.linalg.eig({q})[0]
        abs(jnp.linalg.qr({m})[1])
        jnp.linalg.svd({m}, compute_uv=False)
        jnp.linalg.svdvals({m})
        jnp.linalg.pinv({m})
        jnp.linalg.lstsq({m}, {v})[0]
        jnp.linalg.cond({m})
        jnp.linalg.matrix_rank({m})
        jnp.linalg.tensorinv({q}, ind=1)
        jnp.linalg.tensorsolve({q}, {v})
        jnp.polyfit({v}, {u}, 1)
        jax.scipy.linalg.solve_triangular(jnp.tril({q}) + 9 * jnp.eye({q}.shape[0], dtype={q}.dtype), {v}, lower=True)
        jax.scipy.linalg.cho_solve((jnp.eye({q}.shape[0], dtype={q}.dtype), True), {v})
        jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor({q} @ {q}.T.conj() + 99 * jnp.eye({q}.shape[0], dtype={q}.dtype)), {v})
        jax.scipy.linalg.solve({q} @ {q}.T.conj() + 99 * jnp.eye({q}.shape[0], dtype={q}.dtype), {m}, assume_a='pos')
        jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor({q} + 99 * jnp.eye({q}.shape[0], dtype={q}.dtype)), {v}, trans=1)
        jax.scipy.linalg.lu({q} + 99 * jnp.eye({q}.shape[0], dtype={q}.dtype))[1]
        jnp.linalg.inv({q} + 99 * jnp.eye({q}.shape[0], dtype={q}.dtype))
        abs(jnp.linalg.qr({q} + 99 * jnp.eye({q}.shape[0], dtype={q}.dtype))[1])
        jnp.linalg.svdvals({q})
        jax.scipy.linalg.toeplitz({v})
        jax.scipy.linalg.expm({q} / 99)
        jax.scipy.linalg.block_diag({m}, {t})
        jax.scipy.sparse.linalg.cg(lambda a: a * 2, {v})[0]
        lax.custom_linear_solve(lambda a: a * 2, {v}, lambda f, b: b / 2, symmetric=True)
        lax.linalg.lu({q})[0]
        lax.linalg.tridiagonal_solve({v} * 0, {v} * 0 + 9, {v} * 0, {m})
        """),
        "solve",
        "loose",
    ),
    *each("jnp.fft._({x})", "fft ifft fftn ifftn fftshift ifftshift", "inexact", "loose"),
    *each("jnp.fft._({m})", "fft2 ifft2 hfft irfft irfft2 irfftn", "inexact", "loose"),
    *each("jnp.fft._({m})", "rfft ihfft rfft2 rfftn", "wide", "loose"),
    *lines(
        """
        jnp.fft.fft({x}, axis={A})
        lax.fft({m}.astype(jnp.complex64), 'fft', (3,))
        jnp.fft.fftfreq({x}.shape[0])
        jnp.fft.rfftfreq({v}.shape[0])
        jax.scipy.signal.convolve({v}, {w})
        jax.scipy.signal.correlate({v}, {w}, mode='same')
        jax.scipy.signal.fftconvolve({v}, {w})
        jax.nn.dot_product_attention({m}[None, :, None], {m}[None, :, None], {m}[None, :, None])
        """,
        "wide",
        "loose",
    ),
]
ORDERED = [
    *each("jnp._({x}, axis={A})", "sort argsort", "ordered"),
    *each("jnp._({x}, axis={A})", "cumsum nancumsum cumulative_sum", "num"),
    *each("jnp._({x}, axis={A})", "cumprod nancumprod cumulative_prod", "num", "loose"),
    *each("lax._({x}, axis={A}, reverse=True)", "cumsum", "num"),
    *each("lax._({x}, axis={A})", "cumsum", "num"),
    *each("lax._({x}, axis={A}, reverse=True)", "cumprod", "num", "loose"),
    *each("lax._({x}, axis={A})", "cumprod", "num", "loose"),
    *each("lax._({x}, axis={A})", "cummax cummin", "real"),
    *each("lax._({x}, axis={A}, reverse=True)", "cummax cummin", "real"),
    *lines(
        "lax.cumlogsumexp({x}, axis={A})\nlax.cumlogsumexp({x}, axis={A}, reverse=True)", "wide"
    ),
    *lines(
        """
        jnp.sort({x}, axis={A}, descending=True)
        jnp.argsort({x}, axis={A}, descending=True, stable=True)
        jnp.argsort({x}, axis={A}, stable=False)
        jnp.partition({v}, 1)[:2]
        jnp.argpartition({v}, 1)[:1] * 0
        jnp.lexsort(({v}, {u}))
        jnp.sort_complex({v})
        lax.sort({x}, dimension={A})
        lax.sort(({v}, {u}), num_keys=2)
        lax.sort(({v}, {i}), num_keys=1)
        lax.sort_key_val({v}, {u})
        lax.top_k({v}, 2)
        jnp.top_k({v}, 2)
        jnp.minmax({x}, axis={A})
        lax.top_k({t}, 2)
        jnp.unique({v}, size=3)
        jnp.unique({v}, size=3, fill_value=1)
        jnp.unique({v}, size=3, return_index=True, return_counts=True)
        jnp.unique_values({v}, size=4)
        jnp.unique_counts({v}, size=4)
        jnp.unique_inverse({v}, size=4).inverse_indices
        jnp.unique_all({v}, size=4)
        jnp.union1d({v}, {u}, size=4)
        jnp.intersect1d({v}, {u}, size=4)
        jnp.setdiff1d({v}, {u}, size=4)
        jnp.setxor1d({v}, {u}, size=4)
        jnp.isin({x}, jnp.array([0, 1]))
        jnp.isin({v}, {u})
        jnp.nonzero({v}, size=3)
        jnp.nonzero({m}, size=3)
        jnp.flatnonzero({v}, size=3, fill_value=-1)
        jnp.argwhere({v}, size=2)
        jnp.extract({b}, {v}, size=3)
        jnp.where({v} != 0, size=3)[0]
        jnp.compress(np.array([True, False, True]), {t}, axis=0)
        jnp.digitize({v}, jnp.sort({u}))
        jax.scipy.stats.rankdata({v})
        jax.scipy.stats.mode({v}).mode
        lax.associative_scan(jnp.add, {x}, axis={A})
        lax.associative_scan(jnp.maximum, {v}, reverse=True)
        """,
        "ordered",
    ),
]
MOVED = [
    *lines(
        """
        {x}[0]
        {x}[-1]
        {x}[1:]
        {x}[:-1]
        {x}[::2]
        {x}[::-1]
        {x}[-2:]
        {x}[1:3]
        {x}[..., None]
        {x}[None]
        {x}[{x}.shape[0] // 2:]
        {x}[jnp.array([0, -1, 1])]
        {x}[np.uint8([0, 255, 100])]
        {x}[np.int8(-1)]
        {x}[np.uint8(100)]
        {x}[np.int16(1)]
        {x}[{i}]
        {x}[{j}]
        {x}[{j}[0]]
        {m}[:, {j}]
        {m}[{i}, 1]
        {t}[:, {i}]
        {m}[{j}, {j}]
        {x}[jnp.where({b}, size=2)[0]]
        {x}.at[{i}].get(mode='fill')
        {x}.at[{i}].get(mode='clip')
        {x}.at[{i}].get(mode='promise_in_bounds') * 0
        {x}.at[{j}].get(mode='fill', fill_value=1)
        jnp.take({x}, {i}, axis={A})
        jnp.take({x}, {j}, axis={A}, mode='clip')
        jnp.take({x}, {j}, axis={A}, mode='wrap')
        jnp.take({x}, {j}, axis={A}, mode='fill')
        jnp.take({x}, {i}, axis={A}, mode='fill', fill_value=1)
        jnp.take_along_axis({v}, {i}, 0)
        jnp.take_along_axis({m}, {i}[:, None], 0)
        jnp.take_along_axis({m}, {i}[:, None], 1)
        jnp.take_along_axis({m}, jnp.argsort({m}, axis=0), 0)
        {x}.at[{i}].set(1)
        {x}.at[{j}].set(1)
        {x}.at[{j}].set(1, mode='clip')
        {x}.at[{j}[0]].set(2)
        {x}.at[{j}].add(1)
        {x}.at[{i}].add({x})
        {x}.at[{i}].max({x})
        {x}.at[{i}].min(1)
        {x}.at[{i}].multiply(2)
        {x}.at[1:].set(0)
        {x}.at[:-1].add(1)
        {x}.at[::2].set(1)
        {x}.at[-1].set(1)
        {x}.at[np.uint8(100)].set(1)
        {x}.at[np.int8(-1)].add(1)
        {x}.at[0].apply(jnp.square)
        {m}.at[{j}, {j}].set(1)
        {m}.at[:, 1].set({v})
        {m}.at[{i}, 0].add({v})
        jnp.zeros(4, {v}.dtype).at[{i}].add({v})
        jnp.zeros(4, {v}.dtype).at[{i}].max({v})
        jnp.zeros((4, 3), {m}.dtype).at[{i}].add({m})
        jnp.zeros({v}.shape[0] + 2, {v}.dtype).at[{i} + 1].set({v})
        jnp.put({v}, {j}, 1, inplace=False)
        jnp.put({v}, {j}, 1, mode='clip', inplace=False)
        jnp.put_along_axis({v}, {i}, 1, 0, inplace=False)
        jnp.place({v}, {b}, jnp.ones(3, {v}.dtype), inplace=False)
        jnp.fill_diagonal({q}, 1, inplace=False)
        jnp.insert({v}, 1, 0)
        jnp.delete({v}, 0)
        jnp.append({v}, {u})
        jnp.append({x}, {y}, axis={A})
        lax.dynamic_slice({v}, ({j}[0],), (2,))
        lax.dynamic_slice({v}, (jnp.uint8(100),), (1,))
        lax.dynamic_slice_in_dim({x}, {j}[1], 1, {A})
        lax.dynamic_index_in_dim({x}, {j}[1], {A})
        lax.dynamic_index_in_dim({x}, -1, {A}, keepdims=False)
        lax.dynamic_update_slice({v}, jnp.ones(2, {v}.dtype), ({j}[2].astype(jnp.int32),))
        lax.dynamic_update_slice({v}, {v}[:2], (jnp.int32(100),))
        lax.dynamic_update_slice_in_dim({x}, {x}[:1] * 1, {j}[0].astype(jnp.int32), 0)
        lax.dynamic_update_index_in_dim({x}, {x}[0], {j}[0].astype(jnp.int32), 0)
        lax.index_in_dim({x}, 0, {A})
        lax.index_take({x}, ({j},), (0,))
        lax.slice_in_dim({x}, 1, None, 1, {A})
        lax.slice_in_dim({x}, None, -1, 2, {A})
        lax.slice({v}, (1,), ({v}.shape[0],), (2,))
        lax.gather({v}, {i}[:, None], lax.GatherDimensionNumbers((), (0,), (0,)), (1,), mode='fill')
        lax.gather({v}, {j}[:, None], lax.GatherDimensionNumbers((), (0,), (0,)), (1,), mode='clip')
        lax.scatter({v}, {j}[:, None], jnp.ones(3, {v}.dtype), lax.ScatterDimensionNumbers((), (0,), (0,)))
        lax.scatter_add({v}, {i}[:, None], {v}, lax.ScatterDimensionNumbers((), (0,), (0,)))
        lax.scatter_sub({v}, {i}[:, None], {v}, lax.ScatterDimensionNumbers((), (0,), (0,)))
        lax.scatter_mul({v}, {j}[:, None], jnp.ones(3, {v}.dtype), lax.ScatterDimensionNumbers((), (0,), (0,)), mode='clip')
        lax.scatter_max({v}, {i}[:, None], {v}, lax.ScatterDimensionNumbers((), (0,), (0,)))
        lax.scatter_min({v}, {i}[:, None], {v}, lax.ScatterDimensionNumbers((), (0,), (0,)))
        lax.scatter_apply({v}, {j}[:, None], lambda a: a * 2, lax.ScatterDimensionNumbers((), (0,), (0,)), update_shape=(3,))
        jnp.diff({x}, axis={A})
        jnp.diff({x}, axis={A}, prepend=0)
        jnp.ediff1d({v})
        jnp.gradient({v})
        jnp.roll({x}, {K}, axis={A})
        jnp.roll({x}, {j}[0], axis={A})
        jnp.roll({x}, -1)
        jnp.flip({x}, {A})
        jnp.fliplr({m})
        jnp.flipud({x})
        jnp.rot90({m})
        jnp.unwrap({v})
        jnp.trim_zeros({v})
        """,
    ),
]
SHAPED = [
    *lines(
        """
        {x}.T
        {x}.reshape(-1)
        {x}.reshape({x}.shape)
        {x}[:, None]
        {m}.reshape(-1, 1, 3)
        {m}.reshape(3, -1)
        {m}.T.reshape(-1)
        {m}.reshape({m}.size)
        jnp.ravel({x})
        jnp.reshape({x}, (-1, 1))
        jnp.transpose({x})
        jnp.permute_dims({m}, (1, 0))
        jnp.matrix_transpose({m})
        jnp.linalg.matrix_transpose({m})
        jnp.swapaxes({m}, 0, 1)
        jnp.moveaxis({m}, 0, 1)
        jnp.rollaxis({m}, 1)
        jnp.expand_dims({x}, {A})
        jnp.squeeze({x}[None], 0)
        jnp.atleast_1d({x})
        jnp.atleast_2d({x})
        jnp.atleast_3d({x})
        jnp.broadcast_to({x}, (2, *{x}.shape))
        jnp.broadcast_arrays({v}, {s})[1]
        jnp.broadcast_arrays({v}[:, None], {w})[0]
        jnp.stack([{x}, {y}])
        jnp.stack([{x}, {y}], axis=-1)
        jnp.concatenate([{x}, {y}], axis={A})
        jnp.concat([{x}, {y}], axis={A})
        jnp.concatenate([{v}, {w}])
        jnp.concatenate([{w}, {v}, {u}])
        jnp.hstack([{x}, {y}])
        jnp.vstack([{x}, {y}])
        jnp.dstack([{x}, {y}])
        jnp.column_stack([{v}, {u}])
        jnp.block([[{m}, {m}], [{m}, {m}]])
        jnp.tile({x}, 2)
        jnp.tile({m}, (2, 1))
        jnp.repeat({x}, 2, axis={A})
        jnp.repeat({v}, abs({i}) % 3, total_repeat_length=5)
        jnp.repeat({x}, 3)
        jnp.resize({v}, (4,))
        jnp.pad({v}, 1)
        jnp.pad({v}, (1, 2), mode='edge')
        jnp.pad({v}, 1, mode='edge')[:-2]
        jnp.pad({m}, ((1, 1), (0, 0)), mode='edge')[2:]
        jnp.pad({v}, (1, 1), mode='reflect')
        jnp.pad({v}, 1, mode='reflect')[2:]
        jnp.pad({v}, (1, 1), mode='symmetric')
        jnp.pad({v}, (1, 2), mode='wrap')
        jnp.pad({v}, (2, 0), mode='linear_ramp')
        jnp.pad({v}, 1, mode='mean')
        jnp.pad({v}, 1, mode='maximum')
        jnp.pad({m}, ((1, 0), (0, 2)), constant_values=1)
        jnp.split({m}, 3, axis=1)[1]
        jnp.split({x}, [1, 2], axis=0)[1]
        jnp.array_split({m}, 2, axis=1)[0]
        jnp.hsplit({m}, 3)[0]
        jnp.vsplit({t}, 3)[0]
        jnp.dsplit({m}[..., None, None].reshape({m}.shape[0], 1, 3), 3)[1]
        jnp.unstack({t})[0]
        jnp.unstack({m}, axis=1)[1]
        jnp.diag({v})
        jnp.diag({q})
        jnp.diagflat({v})
        jnp.diagonal({q})
        jnp.diagonal({q}, offset=1)
        jnp.linalg.diagonal({q})
        jnp.tril({q})
        jnp.triu({m}, 1)
        jnp.tril({m})
        jnp.meshgrid({v}, {w})[0]
        jnp.meshgrid({v}, {u}, indexing='ij')[1]
        jnp.ix_({i}, {j})[0]
        jnp.indices(({x}.shape[0],))[0]
        jnp.apply_along_axis(jnp.sum, {A}, {x})
        jnp.apply_over_axes(jnp.sum, {m}, [0])
        jnp.arange({x}.shape[0]) * 2
        jnp.arange({x}.shape[0])[::-1]
        jnp.arange(1, {x}.shape[0] + 1)
        jnp.ones((({x}.shape[0] - 5) // 2) ** 2)
        jnp.arange((({x}.shape[0] - 4) // 2) * (({x}.shape[0] - 5) // 2))
        lax.pad({v}, jnp.zeros((), {v}.dtype), (({v}.shape[0] - 5, 9, 0),))
        lax.pad({v}, jnp.zeros((), {v}.dtype), ((9, {v}.shape[0] - 5, 0),))
        jnp.linspace(0.0, 1.0, {x}.shape[0])
        jnp.logspace(0.0, 1.0, {x}.shape[0])
        jnp.geomspace(1.0, 2.0, {x}.shape[0])
        jnp.zeros({x}.shape[0])
        jnp.ones(({x}.shape[0], 2))
        jnp.full({x}.shape[0], 2)
        jnp.empty({x}.shape[0]) * 0
        jnp.eye({x}.shape[0])
        jnp.identity({x}.shape[0])
        jnp.tri({x}.shape[0])
        jnp.bartlett({x}.shape[0])
        jnp.blackman({x}.shape[0])
        jnp.hamming({x}.shape[0])
        jnp.hanning({x}.shape[0])
        jnp.kaiser({x}.shape[0], 2.0)
        jnp.tril_indices({x}.shape[0])[0]
        jnp.triu_indices({x}.shape[0])[0]
        jnp.tril_indices_from({q})[0]
        jnp.triu_indices_from({q})[0]
        jnp.diag_indices({x}.shape[0])[0]
        jnp.diag_indices_from({q})[0]
        jnp.mask_indices({x}.shape[0], jnp.triu)[0]
        jnp.fromfunction(lambda a: a + 1, ({x}.shape[0],))
        jnp.unravel_index({i}, (3, 4))[0]
        jnp.ravel_multi_index(({i}, {i}), (3, 4), mode='clip')
        jnp.ravel_multi_index(({j}, {j}), {m}.shape, mode='wrap')
        jnp.broadcast_shapes({x}.shape, (1,))[0] + {x} * 0
        jnp.ndim({x}) * {x}
        jnp.size({x}) + jnp.sum({x})
        jnp.shape({x})[0] + {x} * 0
        len({x}) + {x} * 0
        lax.broadcast({x}, (2,))
        lax.broadcast_like({s}, {x})
        lax.broadcast_in_dim({v}, (2, {v}.shape[0]), (1,))
        lax.broadcast_to_rank({x}, 3)
        lax.broadcasted_iota(jnp.int32, {x}.shape, {A})
        lax.broadcasted_iota(jnp.int8, {x}.shape, {A})
        lax.iota(jnp.uint8, {x}.shape[0])
        lax.iota(jnp.float32, {x}.shape[0])
        lax.collapse({m}, 0, 2)
        lax.concatenate([{x}, {y}], {A})
        lax.expand_dims({x}, (0,))
        lax.squeeze({x}[None], (0,))
        lax.reshape({m}, ({m}.shape[0] * 3,))
        lax.rev({x}, ({A},))
        lax.transpose({m}, (1, 0))
        lax.tile({v}, (2,))
        lax.split({m}, (1, 2), axis=1)[1]
        lax.unstack({t})[1]
        lax.stack([{x}, {y}])
        lax.full(({x}.shape[0],), 2)
        lax.empty({x}.shape, {x}.dtype) * 0
        lax.pad({v}, jnp.zeros((), {v}.dtype), [(1, 2, 0)])
        lax.pad({v}, jnp.ones((), {v}.dtype), [(-1, 2, 1)])
        lax.pad({v}[:1], jnp.ones((), {v}.dtype), [(0, {v}.shape[0] - 1, 0)])
        lax.pad({v}[-2:], jnp.ones((), {v}.dtype), [(1, {v}.shape[0] - 3, 0)])
        lax.pad({s}[None], jnp.ones((), {s}.dtype), [({x}.shape[0] - 1, 0, 0)])
        lax.pad({m}, jnp.ones((), {m}.dtype), [(0, -1, 2), (1, 0, 0)])
        lax.reduce_window({v}, jnp.zeros((), {v}.dtype), lax.add, (2,), (1,), 'VALID')
        lax.reduce_window({m}, jnp.zeros((), {m}.dtype), lax.add, (1, 2), (1, 1), 'SAME')
        lax.reduce_window({v}, jnp.zeros((), {v}.dtype), lax.add, (3,), (2,), 'SAME')
        lax.reduce_window({m}, jnp.ones((), {m}.dtype), lax.mul, (2, 1), (1, 1), 'SAME', window_dilation=(2, 1))
        lax.reduce_window({v}, jnp.zeros((), {v}.dtype), lax.add, (2,), (1,), ((1, 2),), base_dilation=(2,))
        lax.bitcast_convert_type({x}, {x}.dtype)
        lax.shape_as_value({x}.shape)
        lax.padtype_to_pads({x}.shape[:1], (2,), (1,), 'SAME')[0][0] + {x} * 0
        lax.composite(lambda a: a * 2, 'x.double')({x})
        lax.platform_dependent({x}, default=lambda a: a)
        jnp.packbits({b})
        jnp.unpackbits({v}.astype(jnp.uint8))
        """,
    ),
]
POLYNOMIALS = [
    *lines(
        """
        jnp.polyadd({v}, {w})
        jnp.polysub({v}, {u})
        jnp.polymul({v}, {w})
        jnp.polyder({v})
        jnp.polyint({v})
        jnp.polydiv({v}, {w})[0]
        jnp.poly({w})
        jnp.poly({v})
        jnp.roots({w}, strip_zeros=False) * 0
        """,
        "wide",
        "loose",
    ),
]
DRAWN = [
    *each(
        "jax.random._(jax.random.key(1), {x}.shape)",
        "normal uniform exponential gumbel laplace logistic cauchy rademacher",
    ),
    *lines(
        """
        jax.random.bernoulli(jax.random.key(2), 0.5, {x}.shape)
        jax.random.randint(jax.random.key(3), {x}.shape, 0, 100)
        jax.random.bits(jax.random.key(4), {x}.shape, jnp.uint8)
        jax.random.permutation(jax.random.key(5), {x})
        jax.random.choice(jax.random.key(6), {v}, (3,))
        jax.random.categorical(jax.random.key(7), {v})
        jax.random.gamma(jax.random.key(8), 2.0, {x}.shape)
        jax.random.poisson(jax.random.key(8), 2.0, {x}.shape)
        jax.vmap(lambda k, a: a + jax.random.normal(k))(jax.random.split(jax.random.key(9), {v}.shape[0]), {v})
        jax.vmap(lambda k: jax.random.uniform(jax.random.fold_in(jax.random.key(1), k)))(jnp.arange({x}.shape[0]))
        jax.random.dirichlet(jax.random.key(1), jnp.ones(3), ({x}.shape[0],))
        jax.random.truncated_normal(jax.random.key(1), -1.0, 1.0, {x}.shape)
        lax.rng_uniform(0.0, 1.0, {x}.shape) * 0
        lax.rng_bit_generator(jnp.zeros(4, jnp.uint32), {x}.shape)[1]
        """,
    ),
]
RECIPES = [*REDUCED, *LINEAR, *ORDERED, *MOVED, *SHAPED, *POLYNOMIALS, *DRAWN]
