"""Devices: process-wide settings, placement of pytrees, pipelines of layers, transfers to the
host.
"""
