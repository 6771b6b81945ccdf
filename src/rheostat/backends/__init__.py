"""The kinds of model a config may name. Heavy libraries are imported when a model is opened, not before."""

from rheostat.backends.chat import ChatModel
from rheostat.backends.check import ContractReport, check_contract, check_remote_contract, warm_up
from rheostat.backends.gguf import GgufModel
from rheostat.backends.http import HttpModel
from rheostat.backends.inference import InferenceModel
from rheostat.backends.mixture import MixtureModel
from rheostat.backends.onnx import OnnxModel
from rheostat.backends.openai import OpenAIModel
from rheostat.backends.progressive import ProgressiveModel
from rheostat.backends.python import PythonModel
from rheostat.backends.relay import RelayModel
from rheostat.backends.reply import as_reply
from rheostat.backends.sklearn import SklearnModel
from rheostat.backends.template import TemplateModel
from rheostat.backends.text_rules import RulesModel
from rheostat.backends.torch import TorchModel
from rheostat.pool.backend import ModelSettings

BACKENDS: dict[str, type[ModelSettings]] = {
    "chat": ChatModel,
    "gguf": GgufModel,
    "http": HttpModel,
    "inference_protocol": InferenceModel,
    "mixture": MixtureModel,
    "onnx": OnnxModel,
    "openai": OpenAIModel,
    "progressive": ProgressiveModel,
    "python": PythonModel,
    "relay": RelayModel,
    "rules": RulesModel,
    "sklearn": SklearnModel,
    "template": TemplateModel,
    "torch": TorchModel,
}
"""Settings by the name that `backend:` takes in a config."""

__all__ = ["BACKENDS", "ContractReport", "as_reply", "check_contract", "check_remote_contract", "warm_up"]
