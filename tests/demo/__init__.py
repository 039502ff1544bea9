"""Does the demo do what it says, with settings and a server of its own?"""
