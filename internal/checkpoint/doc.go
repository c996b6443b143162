// Package checkpoint keeps copies of partitions' state directories in shared storage: a
// directory or an S3 bucket (package storage). A new owner restores the newest copy
// that belongs to its chain, and catches up from there.
//
// The storage holds, under the vault's prefix:
//
//	<partition>/manifests/<seq, 20 digits>-<random>   the list of files of a checkpoint
//	<partition>/files/<sha256>-<random>               one file of the state
//
// A manifest is one line, "refloat-checkpoint <version> <sha256 of the rest>",
// and JSON. It is written twice: as a claim, before the first file is uploaded,
// and as complete, after every file has been read back. Both name the same
// files. Files of up to 4 KiB are stored in the manifest itself. A file that an
// earlier checkpoint uploaded is referenced, not uploaded again.
//
// Invariants:
//   - A checkpoint that is listed as usable was completed, and all its files exist.
//   - No object is overwritten, except a claim by its own completion.
//   - A file that a claim or a complete manifest names is not deleted, whoever
//     saves and prunes concurrently, in whatever order. See Prune.
//   - A restore verifies sizes and SHA-256. The caller must check, by seq and link,
//     that a checkpoint belongs to its chain. So a checkpoint saved by a slow former
//     owner may be useless but does no harm.
//
// The storage must be strongly consistent: every read and listing sees all earlier
// writes and deletions. S3 and compatible services, local disks and cluster file
// systems are. NFS clients cache listings; mount NFS with lookupcache=none,noac.
//
// The package does not interpret the files, and does not acknowledge anything.
package checkpoint
