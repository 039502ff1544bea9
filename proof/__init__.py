"""How do we show that nothing is lost and nothing is out of order?

The scripts of the product run as they are, but stamped (`proof.stamps`): each call leaves a
record on the server of what it did. `proof.checker` replays those records and holds them
against what the actors wrote down and what the server has in the end.
"""
