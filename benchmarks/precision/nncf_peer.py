"""int8 by NNCF, for benchmarks.precision.openvino_int8: run by a Python that has nncf and openvino.

    PYTHON benchmarks/precision/nncf_peer.py SOURCE.onnx IMAGES.npy RESULT.xml [min-max]

Writes the network in SOURCE, quantised to integers, as OpenVINO IR: by nncf.quantize with its defaults, calibrated on
all images (n, c, h, w) in IMAGES; with min-max, by the extremes of activations over all images, where the default takes
the mean of the extremes of each image. Prints the versions as JSON. Does not need catro_deploy.
"""

import json
import sys

import numpy as np


def quantise() -> None:
    """Quantise one network."""
    import nncf
    import openvino
    from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    source, images, result, *ranges = sys.argv[1:]
    calibration = np.load(images)
    network = openvino.Core().read_model(source)
    data = nncf.Dataset([image[None] for image in calibration])
    advanced = None
    if ranges:
        estimator = RangeEstimatorParametersSet.MINMAX
        advanced = AdvancedQuantizationParameters(activations_range_estimator_params=estimator)
    quantised = nncf.quantize(network, data, subset_size=len(calibration), advanced_parameters=advanced)
    openvino.save_model(quantised, result, compress_to_fp16=False)
    print(json.dumps({"nncf": nncf.__version__, "openvino": openvino.__version__}))


if __name__ == "__main__":
    quantise()
