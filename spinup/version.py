version_info = (1, 0, 0)


def get_version() -> str:
    return ".".join(map(str, version_info))


__version__ = get_version()
