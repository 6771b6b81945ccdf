"""What is passed between the rooms: frozen structs, no behaviour to speak of."""

from rheostat.types.chat import Chat
from rheostat.types.context import Context, ModelView, PoolView
from rheostat.types.decision import Answer, Call, Decision, Decline, Floor, Hold
from rheostat.types.outcome import Attempt, Failure, Outcome
from rheostat.types.prediction import Prediction, usable_confidence
from rheostat.types.recalled import Recalled
from rheostat.types.record import Feedback, History, InputSummary, RouteRecord, Step
from rheostat.types.request import Request, text_of
from rheostat.types.size import tokens_of

__all__ = [
    "Answer",
    "Attempt",
    "Call",
    "Chat",
    "Context",
    "Decision",
    "Decline",
    "Failure",
    "Feedback",
    "Floor",
    "History",
    "Hold",
    "InputSummary",
    "ModelView",
    "Outcome",
    "PoolView",
    "Prediction",
    "Recalled",
    "Request",
    "RouteRecord",
    "Step",
    "text_of",
    "tokens_of",
    "usable_confidence",
]
