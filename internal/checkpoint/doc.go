// Package checkpoint keeps copies of partitions' state directories in shared
// storage: a directory or an S3 bucket (package storage).
// A new owner restores the newest copy that fits the chain and folds the tail.
//
// What the storage holds, under the vault's prefix:
//
//	<partition>/manifests/<seq, 20 digits>-<random>   what a checkpoint is made of
//	<partition>/files/<sha256>-<random>               one file of the state
//
// A manifest is one line, "refloat-checkpoint <version> <sha256 of the rest>",
// and JSON. It is written twice: as a claim, before the first file is uploaded,
// and as complete, after every file has been read back. Both name the same
// files. Files of up to 4 KiB stand in the manifest itself. A file that an
// earlier checkpoint uploaded is named again, not uploaded again.
//
// Invariants:
//   - What is listed as usable was complete, and each of its files is there.
//   - No object is written over, but a claim by its own completion.
//   - A file that a claim or a complete manifest names is not deleted, whoever
//     saves and prunes at the same time, in whatever order. See Prune.
//   - Nothing that is restored is trusted: sizes and SHA-256 are compared. Whether
//     a checkpoint belongs to a chain, its seq and link say; that is for the
//     caller to check. So what a slow old owner saves can be of no use, never harm.
//
// It needs storage in which a finished write or deletion is seen by every later
// read and listing: S3 and what is compatible with it, a local disk, a cluster
// file system. NFS clients cache listings; mount it with lookupcache=none,noac.
//
// It does not know what the files mean, and it does not acknowledge anything.
package checkpoint
