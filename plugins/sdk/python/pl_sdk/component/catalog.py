"""The contract's interface `catalog`."""

from __future__ import annotations

from wit_world.exports import catalog

from . import registry


class Catalog:
    """See the contract."""

    def describe(self) -> list:
        items = []
        for kind, name, doc, settings, facts in registry().describe():
            facts = [catalog.Fact(fact, catalog.FactKind[fact_kind.upper()], doc) for fact, fact_kind, doc in facts]
            items.append(catalog.Item(catalog.ItemKind[kind.upper()], name, doc, settings, facts))
        return items
