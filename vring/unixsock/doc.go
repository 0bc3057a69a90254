// Package unixsock makes UNIX sockets: listeners that own their file, and
// connects that do not wait.
//
// Who calls it: whoever meets other processes at a path, at start-up or on the
// loop. Nothing here blocks, and nothing is kept but a Listener's descriptor and
// the identity of its file.
//
// What it trusts: the path comes from the administrator, and so does the folder.
// What lies at the path is not trusted. Only a socket that refuses connections (a
// leftover of a process that has died) is removed and replaced; a file, a folder,
// a symbolic link, even one to a socket, and a socket that anybody answers on are
// errors. Close removes the file only while it is the one that Listen made (same
// device and inode).
//
// The file has its mode and owner before anybody can connect: it appears with
// no more than the mode that was asked for, and listening comes last.
//
// Sockets are non-blocking and closed on exec. A path that begins with @ is a
// name in the abstract namespace, which has no file, mode or owner.
//
// Limits: 107 bytes per path (sun_path less its NUL).
//
// What it deliberately does not do: no accepting, no reading, no registering
// with a loop, no lock against a second process that starts on the same path in
// the same instant (the later one wins).
package unixsock
