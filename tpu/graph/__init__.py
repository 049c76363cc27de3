"""Graphs of TPUEstimator, as the emulator and the check read them.

`replicated_graph` finds the program of one core, `flat_program` is that program without functions,
`placement` says where its operations run. The other modules are what these and their readers share.
"""
