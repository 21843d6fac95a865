"""Of cuda-pathfinder what the compilation of kernels asks for."""

find_nvidia_header_directory = str
