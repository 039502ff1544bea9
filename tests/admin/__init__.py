"""The admin's page of group queues."""
