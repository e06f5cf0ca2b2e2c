"""Export to ONNX graphs, and ONNX Runtime as a backend."""

from offramp.errors import MissingExtraError

try:
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import onnxscript  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        "ONNX graphs need onnx, onnxruntime and onnxscript", hint="pip install 'offramp[onnx]'"
    ) from error

from offramp.runtime.onnx._export import export_onnx

__all__ = ["export_onnx"]
