"""The zoo: small programs of the kinds that people train, run eagerly and through a backend.

Where the fuzzer draws what nobody writes, a model here is what everybody writes: modules, a loss, a backward, an
optimizer, batches whose sizes change.
"""

from aotcheck.zoo.judge import Outcome, Result, judged
from aotcheck.zoo.model import MODELS, Kind, Model, Place, Program, Schedule, UnknownModelError, model, models_named

__all__ = [
    "MODELS",
    "Kind",
    "Model",
    "Outcome",
    "Place",
    "Program",
    "Result",
    "Schedule",
    "UnknownModelError",
    "judged",
    "model",
    "models_named",
]
