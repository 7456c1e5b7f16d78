"""What retention may remove, decided from sessions, policy and time alone: a plan with a reason for each session."""

from coldtrail.retention.judge import decide
from coldtrail.retention.plan import Candidate, Decision, Length, Mark, Plan, Verdict, Version

__all__ = ["Candidate", "Decision", "Length", "Mark", "Plan", "Verdict", "Version", "decide"]
