"""Budgets with limits: whom they hold for, and whether there is something cheaper to hold to."""

from __future__ import annotations

from rheostat.config.draft import Draft
from rheostat.config.schema import KeySettings
from rheostat.pool import ModelSettings
from rheostat.resilience.spend import SpendSettings


def check_limits(draft: Draft) -> None:
    """Check that the limits name routes and tenants that are there, and can be kept."""
    keys = [value for path, value in draft.decoder.decoded.items() if path.startswith("keys[") and path.endswith("]")]
    tenants = {key.tenant for key in keys if isinstance(key, KeySettings) and key.tenant is not None}
    costs = {name: model.cost for name, model in draft.models.items() if isinstance(model, ModelSettings)}
    for name, settings in draft.budgets.items():
        if not isinstance(settings, SpendSettings) or settings.limits is None:
            continue
        limits, path = settings.limits, f"budgets.{name}.limits"
        for route in limits.routes:
            draft.exists(f"{path}.routes", route, draft.routes, "route")
        for tenant in limits.tenants:
            draft.exists(f"{path}.tenants", tenant, tenants, "tenant")
        if (settings.per == "tenant" or limits.tenants) and not tenants:
            told = "no key has a `tenant`, so all requests are one tenant's"
            draft.doubtful(f"{path}.tenants" if limits.tenants else f"budgets.{name}.per", told)
        if limits.max_cost is not None and costs and min(costs.values()) > limits.max_cost:
            least = min(costs, key=lambda model: costs[model])
            told = (
                f"the cheapest model, `{least}`, costs {costs[least]:g}, so nothing could be asked; to refuse, leave it out"
            )
            draft.wrong(f"{path}.max_cost", told)
