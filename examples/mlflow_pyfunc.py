"""A model in MLflow as a pyfunc: python examples/mlflow_pyfunc.py ARTIFACT COLUMN DATA.csv.

`EarlyExitModel` is about twenty lines to copy. The artifact is logged as a file of the model, so that a registry, a
scoring server or a Spark job finds all it needs; it runs no code but this class. The answers are a data frame: label,
confidence, exit, relative cost, prediction sets and error. Whoever calls may name a budget, as the model's signature
says: `predict(frame, params={"budget": 0.6})`. ARTIFACT must hold its network. Needs `mlflow`.
"""

import sys
from importlib.metadata import version

import mlflow
import pandas
from mlflow.models import ModelSignature
from mlflow.pyfunc import PythonModel
from mlflow.types.schema import ParamSchema, ParamSpec

# MLflow drops parameters that are not in the signature. Without a budget, the artifact's point answers.
SIGNATURE = ModelSignature(params=ParamSchema([ParamSpec("budget", "double", default=None)]))


class EarlyExitModel(PythonModel):
    """An artifact behind MLflow's interface."""

    def load_context(self, context):
        """Load the artifact, once per process."""
        import offramp

        self.model = offramp.load(context.artifacts["model"])

    def predict(self, context, model_input, params=None):
        """Answer the rows of the first column; bad inputs have their `error`, others an empty one."""
        column = model_input.iloc[:, 0] if isinstance(model_input, pandas.DataFrame) else model_input
        answer = self.model.predict(list(column), on_error="mark", budget=(params or {}).get("budget"))
        return answer.to_pandas()


def log(artifact: str) -> str:
    """Log a saved model in a run of its own, with the figures of its point, and return its address."""
    import offramp

    model = offramp.load(artifact)
    with mlflow.start_run():
        mlflow.log_params({"network": model.backbone.name, "policy": model.policy})
        mlflow.log_metrics({f"tune_{name}": value for name, value in model.point.tune_metrics.items()})
        return mlflow.pyfunc.log_model(
            name="early-exits",
            python_model=EarlyExitModel(),
            artifacts={"model": artifact},
            pip_requirements=[f"offramp=={version('offramp')}", "pandas"],
            signature=SIGNATURE,
        ).model_uri


if __name__ == "__main__":
    artifact, column, data = sys.argv[1:4]
    mlflow.set_tracking_uri("sqlite:///mlflow.db")  # a file in this folder; yours may be a server
    address = log(artifact)
    loaded = mlflow.pyfunc.load_model(address)
    print(address)
    print(loaded.predict(pandas.read_csv(data)[[column]]))
