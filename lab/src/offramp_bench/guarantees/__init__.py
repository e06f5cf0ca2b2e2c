"""Whether promises hold: of loss, of budget, of alarms and of prediction sets."""
