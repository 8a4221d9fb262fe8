"""Scores records with a model, many at a time: a batch is a matrix, and numpy multiplies it by the weights. The weights
are a data file that is shipped with the job.

tailrace run examples/ml_inference/ml_inference.py
"""

import json
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import tailrace as tr

MODEL = Path(__file__).parent / "model.json"
FEATURES = ("amount", "hour", "distance_km", "is_abroad")


@dataclass(frozen=True)
class Payment:
    number: int
    amount: float
    hour: float
    distance_km: float
    is_abroad: float


@dataclass(frozen=True)
class Score:
    number: int
    probability: float


class Model:
    """A logistic regression. It is loaded once in each process, where the job runs."""

    def open(self, context: tr.RuntimeContext) -> None:
        del context
        model = json.loads(tr.shipped_file(MODEL.name).read_text())
        self.weights = np.array(model["weights"])
        self.bias = float(model["bias"])

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        features = np.column_stack([batch.column(name).to_numpy(zero_copy_only=False) for name in FEATURES])
        probability = 1 / (1 + np.exp(-(features @ self.weights + self.bias)))
        return pa.record_batch(
            [batch.column("number"), pa.array(probability)], names=["number", "probability"]
        )


def main() -> None:
    parser = ArgumentParser("ml_inference", description="Scores payments with a model.")
    parser.add_argument("--payments", default="scored-payments", help="a topic of payments as JSON")
    parser.add_argument("--scores", default="scores", help="a topic")
    parser.add_argument("--least", type=float, default=0.5, help="write scores from this probability on")
    parser.add_argument("--bounded", action="store_true", help="end at the present end of the topic")
    options = parser.parse_args()
    env = tr.StreamExecutionEnvironment.get_execution_environment()
    env.add_python_file(str(MODEL))
    source = tr.KafkaSource(options.payments, tr.Formats.json(), bounded=options.bounded, output_type=Payment)
    scores = env.from_source(source, name="Payments").map_batches(Model(), output_type=Score).name("Model")
    likely = scores.where(f"probability >= {options.least}")
    likely.sink_to(tr.KafkaSink(options.scores, tr.Formats.json(), key=lambda score: str(score.number)))
    env.execute("Inference")


if __name__ == "__main__":
    main()
