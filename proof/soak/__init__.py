"""Does the queue keep its promises while everything around it breaks? `make soak` tries."""
