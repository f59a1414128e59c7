// The hash table asks this of its home, which stores its records and its lines. The table does not depend on a home or on a file: TinyDBM
// gives it memory (hash/record_arena.h), HashDBM a file (hash/record_heap.h).
//
// A record is named by a 32-bit handle, never 0. Calls marked (optimistic) run without a lock beside writers: they may see garbage, must
// not follow it outside the space, and their result counts only if the line's version still holds. All others run with the record's bucket
// line locked by the caller.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "hako/base/status.h"
#include "hako/format/record_format.h"
#include "hako/hash/copy_buffer.h"
#include "hako/hash/record_view.h"
#include "hako/sync/write_gate.h"
#include "hako/sync/writer_states.h"

namespace hako::hash {

template <class S>
concept RecordSpace = requires(S& s, typename S::WriterState& writer, std::uint32_t handle, std::uint64_t n, std::uint64_t head,
                               std::string_view bytes, FetchedCopy& copy, format::Lengths& lengths, Status* error, IndexExtent kind,
                               CopyBuffer& buffer, RecordCopy* copied, char* (*sink)(std::size_t), bool (*is_current)()) {
  requires std::derived_from<typename S::WriterState, sync::WriterState>;
  { S::kOverwrites } -> std::convertible_to<bool>;  // whether a value can be changed in place
  { S::kReadsAhead } -> std::convertible_to<bool>;  // whether an Ahead reads several records together (hash/read_ahead.h), or is nothing
  typename S::Ahead;
  { s.gate() } -> std::same_as<sync::WriteGate&>;

  // Index lines: zero-filled extents of one address range that never moves.
  { s.AllocateIndexExtent(n, kind) } -> std::same_as<StatusOr<std::uint64_t>>;
  { s.index_base() } -> std::same_as<std::byte*>;
  { s.index_end() } -> std::same_as<std::uint64_t>;  // no line lies at or above it
  { s.StoreLineCount(n) } -> std::same_as<void>;     // to be found again after a process kill

  // Records.
  { s.Prefetch(handle) } -> std::same_as<void>;                                  // (optimistic)
  { s.PrefetchRest(handle) } -> std::same_as<void>;                              // (optimistic) once the head is here
  { s.TryFetchShort(handle, n, bytes, sink) } -> std::same_as<bool>;             // (optimistic) n = hash; false = ask TryFetch
  { s.TryFetch(handle, bytes, sink, is_current, copy) } -> std::same_as<Match>;  // (optimistic)
  { s.CopyRecord(handle, is_current, buffer, copied) } -> std::same_as<Match>;   // (optimistic) to the buffer; kYes: intact
  { s.CopyIsIntact(copy, n) } -> std::same_as<bool>;                             // n = hash of the key
  { s.DamageAt(handle) } -> std::same_as<Status>;
  { s.MatchKey(handle, bytes, &lengths) } -> std::same_as<Match>;                   // and the record's lengths
  { s.View(writer, handle) } -> std::same_as<StatusOr<RecordView>>;                 // checked; DataLoss if damaged
  { s.Write(writer, n, bytes, bytes, error) } -> std::same_as<std::uint32_t>;       // a new record, seen by nobody yet; 0 = error
  { s.WriteAhead(writer, n, bytes, bytes, error) } -> std::same_as<std::uint32_t>;  // the same for a long value, outside the gate and locks
  { s.EndAhead(writer, handle) } -> std::same_as<Status>;                           // inside the gate, before it is published or given back
  { s.Overwrite(handle, lengths, bytes, bytes) } -> std::same_as<bool>;             // in place, if the space allows it
  { s.Commit(handle) } -> std::same_as<void>;                                       // its slot names it now
  { s.Revive(handle) } -> std::same_as<void>;                                       // the same after a process kill
  { s.Retire(writer, handle, lengths) } -> std::same_as<void>;                      // its slot will name it no more
  { s.ReleaseFreed(writer) } -> std::same_as<void>;  // what was retired may be used again: its slot names it no more
  {
    s.NoteMove(handle, handle)
    } -> std::same_as<void>;  // the entry of the first is going to name the second, before either knows; 0 = none
  { s.KeyHash(bytes) } -> std::same_as<std::uint64_t>;

  // The same in short, for short records (format/record_format.h); a refusal, false or 0 or nullopt, means that nothing was done. `head`
  // is the record's first 8 bytes.
  { s.MatchShort(handle, bytes, &head) } -> std::same_as<bool>;
  { s.ViewShort(handle, head, n) } -> std::same_as<std::optional<std::string_view>>;  // its value
  { s.WriteShort(writer, n, bytes, bytes) } -> std::same_as<std::uint32_t>;
  { s.GiveBack(writer, handle, n, n) } -> std::same_as<void>;  // of Write or WriteShort, with the sizes of key and value; nobody saw it
  { s.OverwriteShort(handle, head, bytes) } -> std::same_as<bool>;
  { s.RetireShort(writer, handle, head) } -> std::same_as<void>;
};

}  // namespace hako::hash
