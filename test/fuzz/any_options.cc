// Parses the text form of the options of a database (dbm/any_options.h).
#include "hako/dbm/any_options.h"

#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.h"
#include "hako/text/record_text.h"

namespace hako::fuzz {
namespace {

void Run(std::string_view input) {
  (void)TextFormatOfName(input);
  (void)TextFormatOfPath(input);
  const StatusOr<AnyOptions> options = ParseAnyOptions(input);
  if (!options.ok()) return Require(absl::IsInvalidArgument(options.status()), "another error than InvalidArgument:", options.status());
  (void)options->ResolvedKind();
  (void)TreeOptionsOf(*options);
  // An option that is given twice is the last one.
  if (input.find('?') == input.npos) return;
  const std::string_view separator = input.ends_with('?') || input.ends_with(',') ? "" : ",";
  const StatusOr<AnyOptions> changed = ParseAnyOptions(std::string(input) + std::string(separator) + "dbm=tree,cache_bytes=7,wait=3");
  Require(changed.ok() && changed->kind == AnyOptions::kTree && changed->cache_bytes == 7u, "options cannot be added:", changed.status());
}

std::vector<std::string> MakeSeeds() {
  return {"casket.hkh?num_records=1m,file=pos,align_pow=4,seed=0x7",
          "casket.hkt?cache_bytes=64mi,checkpoint_bytes=1g,page_size=512,order=bytewise,codec=zstd", "?dbm=tiny,durability=none",
          "a?b.hks?dbm=baby,max_bytes=1gi,log_bytes=1000k,mode=truncate,wait=3",
          "x.hkh?direct,block_cache_bytes=1m,huge_pages=false,sync_interval=100,reclaim_bytes=0,reserve_bytes=1t,grow_min=1,grow_max=2"};
}

const Registration kTarget({.name = "any_options", .run = Run, .make_seeds = MakeSeeds, .mutants = 400});

}  // namespace
}  // namespace hako::fuzz
