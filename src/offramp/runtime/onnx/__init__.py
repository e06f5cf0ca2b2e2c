"""Networks with exits as ONNX graphs, and ONNX Runtime as a backend."""

from offramp.errors import MissingExtraError

try:
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import onnxscript  # noqa: F401
except ImportError as error:
    raise MissingExtraError("ONNX graphs need libraries: pip install 'offramp[onnx]'") from error

from offramp.runtime.onnx.backend import OnnxBackend, onnx_backend
from offramp.runtime.onnx.export import export_onnx
from offramp.runtime.onnx.int8 import quantized
from offramp.runtime.onnx.single import write_single

__all__ = ["OnnxBackend", "export_onnx", "onnx_backend", "quantized", "write_single"]
