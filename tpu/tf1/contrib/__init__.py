"""The areas of tf.contrib, one module each.

`__all__` of a module has what is implemented here. NAMES has what moved: {module: "name old=new"}.
SOURCES are modules that have the area's names under the same name, searched last.
"""
