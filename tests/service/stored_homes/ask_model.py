"""Prints what a trained network in MLflow answers to fixed images, asked as a user asks it.

python ask_model.py runs:/RUN/model. Names nothing of the product: whoever loads a model from MLflow
may have none of it.
"""

import json
import sys

import mlflow.pytorch
import torch


def main(uri: str) -> None:
    """Load the model, ask it, and say which packages of the product that took."""
    model = mlflow.pytorch.load_model(uri)
    images = torch.linspace(-2.0, 2.0, 3 * 64).reshape(3, 1, 8, 8)
    with torch.no_grad():
        logits = model(images)
    loaded = {name.partition(".")[0] for name in sys.modules}
    product = sorted(loaded & {"ndadam", "worker", "sweeps", "dashboards", "service"})
    print(json.dumps({"logits": logits.tolist(), "product": product}))


if __name__ == "__main__":
    main(sys.argv[1])
