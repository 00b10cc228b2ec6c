"""Servers, clients, models and oracles that several tests share."""
