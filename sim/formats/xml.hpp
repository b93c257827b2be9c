// The little of XML that topology files of other tools use: elements with attributes, nested;
// comments, a declaration and text are passed over. Strict about all else.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headway {

struct XmlElement {
  std::string name;
  int line = 1;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;

  std::optional<std::string> attribute(std::string_view key) const;
};

// The document's one element. Throws InvalidInput with `file` and the line.
XmlElement parse_xml(std::string_view text, const std::string& file);

}  // namespace headway
