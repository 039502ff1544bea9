"""The demo's app: what happens to an aircraft, flight by flight."""
