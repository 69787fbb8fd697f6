"""The reader of measured convolutions, on a file with a few rows."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from tests import v100

HEAD = "conv_type,batch,in_channels,in_h,in_w,out_channels,kernel,stride,elementwise_fused,latency_ms\n"


def write(folder: Path, rows: str) -> None:
    (folder / "latency").mkdir()
    with gzip.open(folder / "latency" / "v100_tensorrt_fp16.csv.gz", "wt") as file:
        file.write(HEAD + rows)


def test_a_table_has_microseconds_by_width_and_gaps(tmp_path: Path):
    write(
        tmp_path,
        "Regular,1,64,56,56,256,3,1,0,0.0282\nRegular,1,64,56,56,16,3,1,0,0.0178\nRegular,1,32,56,56,16,3,1,0,0.014\n"
        "Regular,1,64,56,56,32,3,1,1,0.5\nDepthwise,1,64,56,56,64,3,1,0,0.5\n",
    )
    records = v100.read(tmp_path, "fp16")
    assert records["depthwise"].tolist() == [False, False, False, False, True]
    ins, outs, latency_us = v100.conv_table(records, kernel=3, stride=1, h=56, batch=1, fused=False)
    assert (ins.tolist(), outs.tolist()) == ([32, 64], [16, 256])
    np.testing.assert_allclose(latency_us, [[14, np.nan], [17.8, 28.2]])


def test_images_that_are_no_squares_are_refused(tmp_path: Path):
    write(tmp_path, "Regular,1,64,56,28,256,3,1,0,0.0282\n")
    with pytest.raises(ValueError, match="square"):
        v100.read(tmp_path, "fp16")
