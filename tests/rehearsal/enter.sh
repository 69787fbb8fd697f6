#!/bin/bash
# Run a command in an aarch64 user space, with its own mount namespace and binfmt_misc: the host is not touched.
# Needs Linux 6.7 and permission to create user namespaces. There is no process namespace: its end would kill a job that
# outlives the connection. FAR_MOUNTS: pairs of a folder and its mount point, one a line; FAR_UID: the user id there.
exec unshare --user --map-root-user --mount /bin/bash -euc '
mount --rbind "$FAR_ROOT" "$FAR_ROOT"
cd "$FAR_ROOT"
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
magic="\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
mask="\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
printf "%s" ":aarch64:M::$magic:$mask:$FAR_QEMU:OCF" > /proc/sys/fs/binfmt_misc/register
mount -t tmpfs none tmp
for system in proc dev sys; do mount --rbind "/$system" "$system"; done
while read -r folder place; do mount --bind "$folder" "./$place"; done <<< "$FAR_MOUNTS"
exec unshare --user --map-user="$FAR_UID" --map-group="$FAR_UID" --root . --wd /home/dev \
    /usr/bin/env -i PATH=/planted/bin:/usr/bin:/bin HOME=/home/dev LANG=C.UTF-8 QEMU_LD_PREFIX=/planted \
    PYTHONPATH="$FAR_PYTHONPATH" LD_LIBRARY_PATH=/opt/lib "$@"' enter.sh "$@"
