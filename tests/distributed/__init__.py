"""Tests of several processes; `nox -s tests-distributed` starts them."""
