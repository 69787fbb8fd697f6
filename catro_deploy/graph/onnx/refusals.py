"""What to do about a network that the exporter or ONNX's checker refuses."""

import re

from catro_deploy.errors import ModelError
from catro_deploy.graph.places import users_line

__all__ = ["checker_refusal", "export_refusal"]

NEWER_OPERATOR = r"No Op registered for (\w+) with domain_version of \d+"
NO_OPERATOR = r"No ONNX function found for <OpOverload\(op='([\w.]+)'"
# Fragments of the exporter's messages, and what the forward then depends on.
CONTROL_FLOW = {
    "data-dependent": "the values of the images",
    "inferred a static shape": "how many images there are",
}


def export_refusal(error: Exception) -> ModelError:
    """The error for a failed export, from its innermost cause, which the exporter wraps in pages of advice."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = str(cause).strip()
    if missing := re.search(NO_OPERATOR, text):
        return ModelError(
            f"The network cannot be exported: ONNX has no operator for {missing[1]}.",
            "Rewrite it with operations that ONNX has, or compute it outside the network.",
        )
    for sign, words in CONTROL_FLOW.items():
        if sign in text:
            return ModelError(
                f"The network cannot be exported: its forward depends on {words}{users_line(cause)}.",
                "An ONNX graph has a single path: make the choice with torch.where, or outside the forward.",
            )
    first = (text.splitlines() or [""])[0]
    return ModelError(
        f"The network cannot be exported: {type(cause).__name__}: {first}{users_line(cause)}",
        "The exporter runs the forward on tensors without values; the forward must support that.",
    )


def checker_refusal(error: Exception, opset: int) -> ModelError:
    """The error for a file that ONNX's checker refuses; it names the opset that has the operator, if that is newer."""
    from onnx import defs

    missing = re.search(NEWER_OPERATOR, str(error))
    versions = (
        schema.since_version
        for schema in defs.get_all_schemas_with_history()
        if missing and (schema.domain, schema.name) == ("", missing[1]) and schema.since_version > opset
    )
    first = min(versions, default=None)
    if missing is None or first is None:
        return ModelError(f"The network does not export to valid ONNX: {error}", "Try another export.opset.")
    return ModelError(
        f"The network needs ONNX's operator {missing[1]}, which opset {opset} does not have.",
        f"Set export.opset = {first}, the first that has it, or a later one.",
    )
