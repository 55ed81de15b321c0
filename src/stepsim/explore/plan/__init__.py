"""Which plan of a model is best: a space of plans, priced together, the best ones simulated."""

from stepsim.explore.plan.search import Objective, PlanSearch, SearchedPlan, search_plans
from stepsim.step.plans import PlanSpace

__all__ = ["Objective", "PlanSearch", "PlanSpace", "SearchedPlan", "search_plans"]
