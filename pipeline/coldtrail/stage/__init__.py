"""The verbs: what is done to sessions, one room each."""
