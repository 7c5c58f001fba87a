#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""code_tables.py FILE…: decodes stored bytes of a format a third time, and compares with the values of the oracle and of a pool.

Each FILE is named FORMAT.LEVEL. The format's name and published definition are all that is used here:

    f16 bf16         IEEE 754 binary16; the upper half of binary32
    e4m3 e5m2        OCP OFP8; -token: times the row's f32 scale; -head, -tensor: times a fixed one
    int8 int8-asym   code * scale (+ zero), f32
    q8_0 … iq4_nl    ggml's block_q8_0 … block_iq4_nl (ggml-common.h)
    aBgN kiviB-v     B bits, least significant first: code * scale + zero, f16, for N (32) channels
    kiviB-k          the same for a channel of 32 rows
    mxfp4 nvfp4      OCP MX: e2m1 * 2^(e - 127) for 32; e2m1 * e4m3 * fixed scale for 16
    tq4 tq3          Max's levels for N(0, 1) * f16 scale of the row
    +had, tq         the transform is undone: Hadamard / sqrt(n); for tq then the signs
"""
import json
import os
import re
import sys

import numpy as np

HEAD_SCALE = float(np.float32(0.37))
IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], float)
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6])
MAX = {4: [0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733], 3: [0.2451, 0.7560, 1.344, 2.152]}


def tensors_read(path):
    raw = open(path, "rb").read()
    data = 8 + int.from_bytes(raw[:8], "little")
    types = {"U8": "u1", "F32": "<f4", "F64": "<f8"}
    return {name: np.frombuffer(raw[data + t["data_offsets"][0]:data + t["data_offsets"][1]], types[t["dtype"]])
            .reshape(t["shape"]) for name, t in json.loads(raw[8:data]).items() if name != "__metadata__"}


def small_float(exponent_bits, mantissa_bits, infinities):
    """All 256 values of an 8-bit float."""
    values = []
    for code in range(256):
        sign, exponent, mantissa = code >> 7, code >> mantissa_bits & (1 << exponent_bits) - 1, code & (1 << mantissa_bits) - 1
        bias = (1 << exponent_bits - 1) - 1
        value = (mantissa / 2 ** mantissa_bits + (exponent > 0)) * 2.0 ** (max(exponent, 1) - bias)
        top = exponent == (1 << exponent_bits) - 1
        if infinities and top:
            value = np.nan if mantissa else np.inf
        if not infinities and top and mantissa == (1 << mantissa_bits) - 1:
            value = np.nan
        values.append(-value if sign else value)
    return np.array(values)


E4M3, E5M2 = small_float(4, 3, False), small_float(5, 2, True)


def f16(u8):
    return u8.reshape(len(u8), -1).copy().view("<f2").astype(float)


def f32(u8):
    return u8.reshape(len(u8), -1).copy().view("<f4").astype(float)


def bits_of(u8, width):
    """Codes of `width` bits from a stream with the least significant bit first."""
    bits = np.unpackbits(u8, axis=1, bitorder="little").reshape(len(u8), -1, width)
    return (bits << np.arange(width)).sum(axis=2)


def nibbles(qs):
    """ggml: the low nibbles are elements 0 .. 15, the high ones 16 .. 31."""
    return np.concatenate([qs & 15, qs >> 4], axis=-1).astype(int)


def ggml(name, codes):
    size = {"q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20, "q4_0": 18, "iq4_nl": 18}[name]
    blocks = codes.reshape(-1, size)
    d, rest, zero = f16(blocks[:, :2]), blocks[:, 2:], 0.0
    if name in ("q5_1", "q4_1"):
        zero, rest = f16(rest[:, :2]), rest[:, 2:]
    if name == "q8_0":
        q = rest.view("i1").astype(float)
    elif name in ("q5_0", "q5_1"):
        q = nibbles(rest[:, 4:]) + 16 * np.unpackbits(rest[:, :4], axis=1, bitorder="little")
    else:
        q = nibbles(rest)
    seen = q.copy()
    if name == "iq4_nl":
        q = IQ4_NL[q]
    q = q - {"q5_0": 16, "q4_0": 8}.get(name, 0)
    shape = (len(codes), -1)
    size = (np.abs(d * q) + np.abs(zero)).reshape(shape)
    return (d * q + zero).reshape(shape), size, seen.reshape(shape).astype(int), np.broadcast_to(d, q.shape).reshape(shape)


def decode(name, t):
    """Rows; for each element the sum of its terms' magnitudes, its code, and its scale."""
    codes, rows = t["codes"], len(t["codes"])
    one = np.ones(codes.shape)
    if name == "f32":
        return f32(codes), None, None, None
    if name == "f16":
        return f16(codes), None, codes.copy().view("<u2"), np.ones((rows, 256))
    if name == "bf16":
        whole = codes.copy().view("<u2")
        return (whole.astype("<u4") << 16).view("<f4").astype(float), None, whole, np.ones((rows, 256))
    if name[:4] in ("e4m3", "e5m2"):
        scale = one * (f32(t["scales"]) if "token" in name else HEAD_SCALE if "-" in name else 1.0)
        return (E4M3 if name[1] == "4" else E5M2)[codes] * scale, None, codes, scale
    if name == "int8":
        return codes.view("i1") * f32(t["scales"]), None, codes, one * f32(t["scales"])
    if name == "int8-asym":
        product, zero = codes * f32(t["scales"]), f32(t["zeros"])
        return product + zero, np.abs(product) + np.abs(zero), codes, one * f32(t["scales"])
    if name in ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"):
        return ggml(name, codes)
    affine = re.fullmatch(r"a(\d)g(\d+)|kivi(\d)-([kv])", name)
    if affine:
        q = bits_of(codes, int(affine[1] or affine[3]))
        scale, zero = f16(t["scales"]), f16(t["zeros"])
        if affine[4] == "k":  # one scale and zero per channel for 32 rows
            scale, zero = (np.repeat(x[:rows // 32], 32, axis=0) for x in (scale, zero))
        else:
            scale, zero = (np.repeat(x, int(affine[2] or 32), axis=1) for x in (scale, zero))
        return q * scale + zero, np.abs(q * scale) + np.abs(zero), q, scale
    if name in ("mxfp4", "nvfp4"):
        q = bits_of(codes, 4)
        if name == "mxfp4":
            scale = np.where(t["scales"] == 255, np.nan, np.exp2(t["scales"].astype(float) - 127))
        else:
            scale = E4M3[t["scales"]]
        scale = np.repeat(scale, 32 if name == "mxfp4" else 16, axis=1)
        return E2M1[q] * scale * (1 if name == "mxfp4" else HEAD_SCALE), None, q, scale
    width = int(re.fullmatch(r"tq([34])", name)[1])
    half = np.array(MAX[width], "f4").astype(float)
    q = bits_of(codes, width)
    return np.concatenate([-half[::-1], half])[q] * f16(t["scales"]), None, q, np.broadcast_to(f16(t["scales"]), q.shape)


def turned(rows, signs):
    n = rows.shape[1]
    pairs = rows
    for distance in 2 ** np.arange(int(np.log2(n))):  # each stage: sums and differences of elements so far apart
        x = pairs.reshape(-1, n // (2 * distance), 2, distance)
        pairs = np.stack([x[:, :, 0] + x[:, :, 1], x[:, :, 0] - x[:, :, 1]], axis=2).reshape(rows.shape)
    out = pairs * float(np.float32(1 / np.sqrt(n)))
    if signs:
        x = (np.arange(1, n + 1, dtype=np.uint64) * 0x9e3779b9) & 0xffffffff
        x = ((x ^ x >> 16) * 0x85ebca6b) & 0xffffffff
        x = ((x ^ x >> 13) * 0xc2b2ae35) & 0xffffffff
        out = np.where((x ^ x >> 16) >> 31, -out, out)
    return out


def compare(where, got, want, allowed):
    """All elements must be equal, both NaN, or differ by at most `allowed`. Returns their number."""
    same = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= allowed)
    if not same.all():
        r, c = np.argwhere(~same)[0]
        sys.exit(f"{where}: {(~same).sum()} elements differ, the first in row {r}, channel {c}: {got[r, c]!r} instead of "
                 f"{want[r, c]!r} +- {np.broadcast_to(allowed, same.shape)[r, c]:.3g}")
    return same.size


def check(path):
    full, level = os.path.basename(path).rsplit(".", 1)
    name = full.removesuffix("+had")
    t = tensors_read(path)
    with np.errstate(all="ignore"):
        rows, size, codes, scales = decode(name, t)
        size = np.abs(rows) if size is None else size
        unit = 2.0 ** -53
        if codes is not None and full == name:  # every code with every scale
            pairs = len({*zip(codes.ravel().tolist(), np.nan_to_num(scales, nan=-1).ravel().tolist())})
            most = len(np.unique(codes)) * len(np.unique(np.nan_to_num(scales, nan=-1)))
            bits = {"f16": 16, "bf16": 16, "tq3": 3}.get(name) or (re.search(r"a(\d)g|kivi(\d)|q(\d)_|nl$|fp4|tq4", name))
            bits = bits if isinstance(bits, int) else int(next((g for g in bits.groups() if g), 4)) if bits else 8
            if len(np.unique(codes)) != 1 << bits or pairs != most:
                sys.exit(f"{full}: {len(np.unique(codes))} of {1 << bits} codes, {pairs} of {most} pairs of code and scale")
        if full != name or name.startswith("tq"):
            norm = np.sqrt((size ** 2).sum(axis=1, keepdims=True))
            rows = turned(rows, name.startswith("tq"))
            fine = size.sum(axis=1) < 1e38  # no stage overflows f32
            if fine.sum() < 64:
                sys.exit(f"{full}: only {fine.sum()} rows can be compared")
            adds = size.sum(axis=1, keepdims=True) / 16  # for the roundings of eight stages of additions
            compare(f"{full}, oracle", t["oracle"][fine], rows[fine], 16 * unit * adds[fine])
            allowed = 12 * 2.0 ** -24 * norm + 2.0 ** -140
            return compare(f"{full}, pool, {level}", t["pool"][fine].astype(float), rows[fine], allowed[fine])
        compare(f"{full}, oracle", t["oracle"], rows, 2 * unit * size)
        rows = np.where(np.abs(rows) > np.finfo("f4").max, np.copysign(np.inf, rows), rows)
        exact = name in ("f32", "f16", "bf16", "e4m3", "e5m2")
        allowed = 0.0 if exact else 3 * 2.0 ** -24 * np.where(np.isfinite(size), size, 0) + 2.0 ** -149
        return compare(f"{full}, pool, {level}", t["pool"].astype(float), rows, allowed)


total = sum(check(path) for path in sys.argv[1:])
print(f"# {len(sys.argv) - 1} tables of formats and levels, {total} elements")
