package sqlite

import "github.com/ncruces/go-sqlite3/vfs"

// unmappedVFS is the name of a VFS that is the driver's own, without memory mapping. For a database with checksums the
// driver offers mapping when it opens the file and withdraws it when it reads the header; SQLite then calls what is not
// there and panics, in a checkpoint that follows another connection's write (driver v0.35.6 to v0.37.0).
const unmappedVFS = "refloat-unmapped"

// registerVFS may be called again.
func registerVFS() {
	if own, ok := vfs.Find("").(vfs.VFSFilename); ok {
		vfs.Register(unmappedVFS, unmapped{own})
	}
}

type unmapped struct{ vfs.VFSFilename }

// OpenFilename implements [vfs.VFSFilename].
func (u unmapped) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := u.VFSFilename.OpenFilename(name, flags)
	if own, ok := f.(file); ok && err == nil {
		return unmappedFile{own}, flags, nil
	}
	return f, flags, err
}

// file is what the driver's files implement, other than [vfs.FileMemoryMapper].
type file interface {
	vfs.FileLockState
	vfs.FileHasMoved
	vfs.FileSizeHint
	vfs.FilePersistWAL
	vfs.FilePowersafeOverwrite
	vfs.FileSharedMemory
}

type unmappedFile struct{ file }
