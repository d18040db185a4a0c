"""The example ports on several devices, against one device and against shardings by hand."""
