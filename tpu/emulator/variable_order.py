def add_edges(graph, operations):
    return operations
