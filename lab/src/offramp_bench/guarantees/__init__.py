"""Tests of what is guaranteed: losses, budgets, false alarms and prediction sets."""
