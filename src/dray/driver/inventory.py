"""Older import path of `dray.driver.classic.inventory`, for drivers that were written against it."""

from dray.driver.classic.inventory import ClassicInventory, publish_inventory

Inventory = ClassicInventory
tell = publish_inventory

__all__ = ["Inventory", "tell"]
