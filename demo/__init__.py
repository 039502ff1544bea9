"""A Django project to try groupqueue with: a month of flights, one group per aircraft."""
