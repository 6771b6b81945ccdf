"""One request's journey, in the order it happens: admit, score, journey (decide), execute, record; `engine` ties them."""
